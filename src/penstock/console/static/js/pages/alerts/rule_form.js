// The form of a rule: the texts of its fields, and the rule that they describe.

const DEFAULT_COOLDOWN_MINUTES = 15;
const NUMBERS = [
  ...["threshold", "clearThreshold", "windowMinutes", "forMinutes", "keepFiringForMinutes", "cooldownMinutes"],
  ...["repeatMinutes", "minSamples", "minObservedPoints", "objective", "withinSeconds", "withinHours"],
];
const TEXTS = ["name", "type", "description", "queue", "group", "operator", "statistic", "form", "measure", "severity", "runbook"];
const MILLISECOND_FIELDS = ["threshold", "clearThreshold"];
const UNITS_MS = { ms: 1, s: 1_000, m: 60_000, min: 60_000, h: 3_600_000, d: 86_400_000 };

/** Return the texts of the form for a rule, or for a new one of a type. */
export function formOf(rule, type) {
  const form = { channels: rule.channels ?? [], enabled: rule.enabled ?? true, labels: labelsText(rule.labels ?? {}) };
  for (const field of TEXTS) form[field] = rule[field] ?? "";
  for (const field of NUMBERS) form[field] = numberText(rule[field], field, type);
  return { ...form, severity: form.severity || "warning" };
}

/** Return the rule that the form describes. Fields that are empty, or that its type does not use, are left out. */
export function ruleOf(form, type) {
  const rule = { channels: form.channels, enabled: form.enabled, labels: parseLabels(form.labels) };
  const isUsed = (field) => usesField(type, field) && form[field].trim() !== "";
  for (const field of TEXTS.filter(isUsed)) rule[field] = form[field].trim();
  for (const field of NUMBERS.filter(isUsed)) rule[field] = parseNumber(form[field].trim(), field, type);
  return rule;
}

/** Whether a type of rule uses a field. */
export function usesField(type, field) {
  if (["objective", "withinSeconds", "withinHours", "form", "measure"].includes(field)) return type.fields.includes(field);
  if (field === "operator") return type.operators.length > 1;
  if (field === "statistic") return type.statistics.length > 0;
  if (field === "queue") return !type.isOfEnvironment;
  if (field === "group") return !type.isOfEnvironment && type.type !== "NEW_ERROR_GROUP";
  if (MILLISECOND_FIELDS.includes(field)) return type.unit !== "flag" && type.type !== "SLO";
  if (field === "windowMinutes") return !["SLO", "EXPIRES_SOON", "PIPELINE_STALE"].includes(type.type);
  if (field === "minSamples") return type.minSamples !== null;
  if (field === "minObservedPoints") return type.canBeTested;
  return true;
}

/** Return the text of the default of a field, for its placeholder. */
export function defaultText(field, type) {
  if (field === "threshold") return type.threshold === null ? "required" : numberText(type.threshold, field, type);
  if (field === "clearThreshold") return "same as the threshold";
  if (field === "repeatMinutes") return "never";
  return String({ ...type, forMinutes: 0, keepFiringForMinutes: 0, cooldownMinutes: DEFAULT_COOLDOWN_MINUTES, minObservedPoints: 0 }[field] ?? "");
}

function numberText(value, field, type) {
  if (value === null || value === undefined) return "";
  return type.unit === "ms" && MILLISECOND_FIELDS.includes(field) ? durationText(value) : String(value);
}

/** Return milliseconds in the largest unit that divides them: 90000 is “90s”. */
export function durationText(ms) {
  const [unit, size] = Object.entries({ d: 86_400_000, h: 3_600_000, m: 60_000, s: 1_000 }).find(([, size]) => ms && ms % size === 0) ?? ["ms", 1];
  return `${ms / size}${unit}`;
}

/** Return the number in a field. A text that is none stays text: the broker says what is wrong with it. */
function parseNumber(text, field, type) {
  const number = Number(text.replaceAll(",", ""));
  if (Number.isFinite(number)) return number;
  const duration = type.unit === "ms" && MILLISECOND_FIELDS.includes(field) && /^([\d.]+)\s*(ms|s|m|min|h|d)$/.exec(text);
  return duration ? Number(duration[1]) * UNITS_MS[duration[2]] : text;
}

const labelsText = (labels) => Object.entries(labels).map(([name, value]) => `${name}=${value}`).join(", ");

function parseLabels(text) {
  const pairs = text.split(",").map((pair) => pair.trim()).filter(Boolean);
  return Object.fromEntries(pairs.map((pair) => (pair.includes("=") ? [pair.slice(0, pair.indexOf("=")).trim(), pair.slice(pair.indexOf("=") + 1).trim()] : [pair, ""])));
}
