// The form of a silence: the texts of its fields, and the silence that they describe.

export const DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
export const DURATIONS = [
  ["1h", "1 hour"],
  ["2h", "2 hours"],
  ["8h", "8 hours"],
  ["1d", "1 day"],
  ["7d", "7 days"],
  ["", "until it is deleted"],
  ["until", "until a time"],
];
const UNITS_MS = { h: 3_600_000, d: 86_400_000 };
const LOCAL_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Return the texts of the form for a silence, which may have some of its fields only. */
export function silenceFormOf({ queue, rule, severity, startsAt, endsAt, recurrence, comment, id }) {
  return {
    queue: queue ?? "",
    rule: rule ?? "",
    severity: severity ?? "",
    startsAt: inputTime(startsAt),
    duration: endsAt ? "until" : id ? "" : "2h",
    endsAt: inputTime(endsAt),
    recurs: Boolean(recurrence),
    days: recurrence?.days ?? DAYS.slice(0, 5),
    from: recurrence?.from ?? "22:00",
    to: recurrence?.to ?? "06:00",
    timeZone: recurrence?.timeZone ?? LOCAL_ZONE ?? "UTC",
    comment: comment ?? "",
  };
}

/** Return the silence that the form describes. `now` is the time at which a duration starts. */
export function silenceOf(form, now = Date.now()) {
  const start = form.startsAt ? Date.parse(form.startsAt) : now;
  const silence = { comment: form.comment.trim() };
  for (const field of ["queue", "rule", "severity"]) if (form[field].trim()) silence[field] = form[field].trim();
  if (form.startsAt) silence.startsAt = new Date(start).toISOString();
  const end = endOf(form, start);
  if (end) silence.endsAt = new Date(end).toISOString();
  if (form.recurs) silence.recurrence = { days: form.days, from: form.from, to: form.to, timeZone: form.timeZone.trim() };
  return silence;
}

function endOf({ duration, endsAt }, start) {
  if (duration === "until") return endsAt ? Date.parse(endsAt) : null;
  return duration ? start + Number.parseInt(duration, 10) * UNITS_MS[duration.at(-1)] : null;
}

/** Return a time for an input of the type datetime-local: local time without seconds. */
function inputTime(iso) {
  if (!iso) return "";
  const time = new Date(iso);
  return new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** Return when a silence applies, in words. `formatTime(ms)` formats a time. */
export function describeTimes({ startsAt, endsAt, recurrence }, formatTime) {
  const parts = [];
  if (recurrence) parts.push(`${recurrence.days.join(", ")} ${recurrence.from}–${recurrence.to} (${recurrence.timeZone ?? "UTC"})`);
  if (startsAt) parts.push(`from ${formatTime(Date.parse(startsAt))}`);
  parts.push(endsAt ? `until ${formatTime(Date.parse(endsAt))}` : "until it is deleted");
  return parts.join(", ");
}
