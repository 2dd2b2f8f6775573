// The filters of a search as query parameters of the URL, and times as the form shows them.

export const FILTERS = ["queue", "partition", "consumerGroup", "status", "from", "to", "id", "transactionId", "text", "key", "value"];

/** Return the filters that the URL has. A value without a key, or a key without a value, is left out. */
export function readFilters(query) {
  const filters = Object.fromEntries(FILTERS.filter((name) => query[name]).map((name) => [name, query[name]]));
  if (!filters.key || !filters.value || !filters.queue) {
    delete filters.key;
    delete filters.value;
  }
  return filters;
}

/** The text of a time field in the selected time zone, from a time in ISO 8601. */
export function toTimeField(iso, zone) {
  const ms = Date.parse(iso);
  if (Number.isNaN(ms)) return "";
  const offset = zone === "UTC" ? 0 : new Date(ms).getTimezoneOffset() * 60_000;
  return new Date(ms - offset).toISOString().slice(0, 19);
}

/** The time in ISO 8601 of a time field in the selected time zone; empty if the field is. */
export function fromTimeField(text, zone) {
  const ms = Date.parse(zone === "UTC" ? `${text}Z` : text);
  return Number.isNaN(ms) ? "" : new Date(ms).toISOString();
}

const UNITS = [
  { from: 1e9, size: 1e9, label: " G" },
  { from: 1e6, size: 1e6, label: " M" },
  { from: 1e4, size: 1e3, label: " k" },
  { from: 0, size: 1, label: "" },
];
const decimal = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });

/** How far a search is, in the unit of its total: “2.1 of 10 M looked at”. */
export function describeProgress({ examined, total, totalIsExact }) {
  const { size, label } = UNITS.find(({ from }) => (total ?? examined) >= from);
  const inUnit = (n) => decimal.format(n / size);
  if (total === null) return `${inUnit(examined)}${label} looked at`;
  return `${inUnit(examined)} of ${totalIsExact ? "" : "about "}${inUnit(total)}${label} looked at`;
}
