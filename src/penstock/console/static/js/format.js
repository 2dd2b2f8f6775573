// Format numbers, durations and times as short text. An unknown value is a dash, never a zero.

import { timeZone } from "./preferences.js";

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

/** The date of a time in ISO 8601; `missing` if there is none. */
export function formatDate(time, missing) {
  return time ? formatParts(new Date(time), "date") : missing;
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

/** A size in bytes: 512 B, 1.5 KB, 20 MB. */
export function formatBytes(n) {
  if (!isKnown(n)) return UNKNOWN;
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  const exponent = n < 1_000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(n) / 3));
  const value = n / 1_000 ** exponent;
  return `${exponent === 0 || value >= 99.5 ? Math.round(value) : +value.toPrecision(3)} ${units[exponent]}`;
}

/** A share as a percentage: 0.5 is 50 %. */
export function formatPercent(share) {
  if (!isKnown(share)) return UNKNOWN;
  return `${+(share * 100).toPrecision(share < 0.995 ? 2 : 3)} %`;
}

/** How long ago (negative) or in how long: 3 min ago, in 2 h, now. */
export function formatRelative(ms) {
  const s = Math.abs(ms) / 1_000;
  if (s < 2) return "now";
  const amount = s < 60 ? `${Math.floor(s)} s` : formatAge(s);
  return ms < 0 ? `${amount} ago` : `in ${amount}`;
}

// The 24-hour clock is short enough for an axis and matches log files.
const hourAndMinute = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const monthAndDay = { month: "short", day: "numeric" };
const TIME_PARTS = {
  second: { ...hourAndMinute, second: "2-digit" },
  minute: hourAndMinute,
  day: monthAndDay,
  date: { year: "numeric", ...monthAndDay },
};
const timeFormats = new Map();

/** Format a date with the parts of one of TIME_PARTS, in the selected time zone. */
function formatParts(date, parts) {
  const zone = timeZone.get() === "UTC" ? "UTC" : undefined;
  const key = `${parts} ${zone}`;
  if (!timeFormats.has(key)) {
    timeFormats.set(key, new Intl.DateTimeFormat(undefined, { ...TIME_PARTS[parts], timeZone: zone }));
  }
  return timeFormats.get(key).format(date);
}

/** The time under the cursor, in the selected time zone. */
export function formatTime(seconds, stepS) {
  const date = new Date(seconds * 1_000);
  const time = formatParts(date, stepS < 60 ? "second" : "minute");
  const isToday = formatParts(date, "date") === formatParts(new Date(), "date");
  return isToday ? time : `${formatParts(date, "day")}, ${time}`;
}

/** An exact time: date, time of day and time zone. */
export function formatDateTime(ms) {
  const date = new Date(ms);
  const text = `${formatParts(date, "date")}, ${formatParts(date, "second")}`;
  return timeZone.get() === "UTC" ? `${text} UTC` : text;
}

/** A fixed span of time: 14:00 to 14:30. */
export function formatTimeSpan(fromMs, toMs) {
  const stepS = toMs - fromMs < 600_000 ? 1 : 60;
  return `${formatTime(fromMs / 1_000, stepS)} to ${formatTime(toMs / 1_000, stepS)}`;
}

/** A label on the time axis: a date at midnight, else a time. */
export function formatTimeTick(seconds, incrementS) {
  const date = new Date(seconds * 1_000);
  const time = formatParts(date, "second");
  if (incrementS >= 86_400 || time === "00:00:00") return formatParts(date, "day");
  return incrementS < 60 ? time : formatParts(date, "minute");
}
