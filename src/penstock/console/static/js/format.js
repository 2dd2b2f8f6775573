// Numbers, durations and local times as short text. Unknown is a dash, never a zero.

const UNKNOWN = "–";
const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumSignificantDigits: 3 });

const known = (n) => n !== null && n !== undefined && Number.isFinite(n);

export function count(n) {
  if (!known(n)) return UNKNOWN;
  return Math.abs(n) < 10_000 ? whole.format(n) : compact.format(n);
}

export function rate(n) {
  if (!known(n)) return UNKNOWN;
  if (n === 0) return "0";
  if (n < 0.1) return n < 0.005 ? "≈0" : n.toFixed(2);
  return n < 100 ? n.toFixed(1) : count(n);
}

/** Two units at most: 84 ms, 4.2 s, 3m 05s, 2h 10m, 5d 3h. */
export function duration(ms) {
  if (!known(ms)) return UNKNOWN;
  if (ms < 1_000) return ms > 0 && ms < 1 ? "<1 ms" : `${Math.round(ms)} ms`;
  const s = ms / 1_000;
  if (s < 59.5) return s < 9.95 ? `${s.toFixed(1)} s` : `${Math.round(s)} s`;
  const two = (big, unit, small, smaller) => `${big}${unit} ${String(small).padStart(2, "0")}${smaller}`;
  const seconds = Math.round(s);
  if (seconds < 3_600) return two(Math.floor(seconds / 60), "m", seconds % 60, "s");
  const minutes = Math.round(s / 60);
  if (minutes < 1_440) return two(Math.floor(minutes / 60), "h", minutes % 60, "m");
  const hours = Math.round(s / 3_600);
  return `${Math.floor(hours / 24)}d ${hours % 24}h`;
}

/** Rates on an axis: round values need no trailing zeros. */
export function rateTick(n) {
  return n < 100 ? String(+n.toFixed(2)) : count(n);
}

/** Durations on an axis: round values, so one unit is enough. */
export function durationTick(ms) {
  if (ms === 0) return "0";
  const steps = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "m"], [1_000, "s"]];
  const [size, unit] = steps.find(([size]) => ms >= size) ?? [1, "ms"];
  return `${+(ms / size).toFixed(1)}${unit === "ms" ? " " : ""}${unit}`;
}

// Twenty-four hours everywhere: short enough for an axis, and what log files show.
const hours = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const clocks = {
  second: new Intl.DateTimeFormat(undefined, { ...hours, second: "2-digit" }),
  minute: new Intl.DateTimeFormat(undefined, hours),
  day: new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" }),
};

/** A moment under the cursor, in the reader's own time zone. */
export function moment(seconds, step) {
  const when = new Date(seconds * 1_000);
  const time = (step < 60 ? clocks.second : clocks.minute).format(when);
  const today = when.toDateString() === new Date().toDateString();
  return today ? time : `${clocks.day.format(when)}, ${time}`;
}

/** A label on the time axis: a date at midnight, else a time. */
export function axisMoment(seconds, increment) {
  const when = new Date(seconds * 1_000);
  const midnight = when.getHours() === 0 && when.getMinutes() === 0 && when.getSeconds() === 0;
  if (increment >= 86_400 || midnight) return clocks.day.format(when);
  return (increment < 60 ? clocks.second : clocks.minute).format(when);
}
