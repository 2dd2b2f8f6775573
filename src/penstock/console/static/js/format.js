// Format numbers, durations and local times as short text. An unknown value is a dash, never a zero.

const UNKNOWN = "–";
const integerFormat = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const compactFormat = new Intl.NumberFormat(undefined, { notation: "compact", maximumSignificantDigits: 3 });

const isKnown = (n) => n !== null && n !== undefined && Number.isFinite(n);

export function formatCount(n) {
  if (!isKnown(n)) return UNKNOWN;
  return Math.abs(n) < 10_000 ? integerFormat.format(n) : compactFormat.format(n);
}

export function formatRate(n) {
  if (!isKnown(n)) return UNKNOWN;
  if (n === 0) return "0";
  if (n < 0.1) return n < 0.005 ? "≈0" : n.toFixed(2);
  return n < 100 ? n.toFixed(1) : formatCount(n);
}

/** At most two units: 84 ms, 4.2 s, 3m 05s, 2h 10m, 5d 3h. */
export function formatDuration(ms) {
  if (!isKnown(ms)) return UNKNOWN;
  if (ms < 1_000) return ms > 0 && ms < 1 ? "<1 ms" : `${Math.round(ms)} ms`;
  const s = ms / 1_000;
  if (s < 59.5) return s < 9.95 ? `${s.toFixed(1)} s` : `${Math.round(s)} s`;
  const join = (large, largeUnit, small, smallUnit) =>
    `${large}${largeUnit} ${String(small).padStart(2, "0")}${smallUnit}`;
  const seconds = Math.round(s);
  if (seconds < 3_600) return join(Math.floor(seconds / 60), "m", seconds % 60, "s");
  const minutes = Math.round(s / 60);
  if (minutes < 1_440) return join(Math.floor(minutes / 60), "h", minutes % 60, "m");
  const hours = Math.round(s / 3_600);
  return `${Math.floor(hours / 24)}d ${hours % 24}h`;
}

/** The local date of a time in ISO 8601; `missing` if there is none. */
export function formatDate(time, missing) {
  return time ? new Date(time).toLocaleDateString(undefined, { year: "numeric", month: "short", day: "numeric" }) : missing;
}

/** A rough age: it changes once a minute at most. */
export function formatAge(s) {
  const minutes = Math.floor(s / 60);
  if (minutes < 1) return "under 1 min";
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h` : `${Math.floor(hours / 24)} days`;
}

/** A sum over counts that may be incomplete: ≥3, and a dash instead of an uncertain zero. */
export function formatTotal(n, isComplete) {
  if (isComplete) return formatCount(n);
  return n === 0 ? UNKNOWN : `≥${formatCount(n)}`;
}

/** A rate on an axis: round values need no trailing zeros. */
export function formatRateTick(n) {
  return n < 100 ? String(+n.toFixed(2)) : formatCount(n);
}

/** A duration on an axis: round values need only one unit. */
export function formatDurationTick(ms) {
  if (ms === 0) return "0";
  const units = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "m"], [1_000, "s"]];
  const [size, unit] = units.find(([size]) => ms >= size) ?? [1, "ms"];
  return `${+(ms / size).toFixed(1)}${unit === "ms" ? " " : ""}${unit}`;
}

// The 24-hour clock is short enough for an axis and matches log files.
const hourAndMinute = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const timeFormats = {
  second: new Intl.DateTimeFormat(undefined, { ...hourAndMinute, second: "2-digit" }),
  minute: new Intl.DateTimeFormat(undefined, hourAndMinute),
  day: new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" }),
};

/** The time under the cursor, in the local time zone. */
export function formatTime(seconds, stepS) {
  const date = new Date(seconds * 1_000);
  const time = (stepS < 60 ? timeFormats.second : timeFormats.minute).format(date);
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? time : `${timeFormats.day.format(date)}, ${time}`;
}

/** A label on the time axis: a date at midnight, else a time. */
export function formatTimeTick(seconds, incrementS) {
  const date = new Date(seconds * 1_000);
  const isMidnight = date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0;
  if (incrementS >= 86_400 || isMidnight) return timeFormats.day.format(date);
  return (incrementS < 60 ? timeFormats.second : timeFormats.minute).format(date);
}
