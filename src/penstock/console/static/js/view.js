// The selected view. It is part of the URL, so that it can be bookmarked and shared.

// Periods and their resolutions. Finer points would cost more and would be invisible at the width of a card.
export const PERIODS = { "5m": "5s", "30m": "5s", "2h": "1m", "24h": "1m", "7d": "1h", "30d": "1h", "365d": "12h" };
const DEFAULT_PERIOD = "30m";
export const FAILURES = ["retried", "dead", "expired"];
export const DEAD_LETTERS_ANCHOR = "#dead-letters";

/**
 * Return the view of the current URL: the period; either a text to search for or the name of one queue; and for one
 * queue the selected line of its chart of failures.
 */
export function readViewFromUrl() {
  const query = new URLSearchParams(location.search);
  const period = query.get("period");
  const series = query.get("series");
  return {
    period: Object.hasOwn(PERIODS, period) ? period : DEFAULT_PERIOD,
    search: query.get("search") ?? "",
    queue: query.get("queue") ?? "",
    series: FAILURES.includes(series) ? series : "",
  };
}

/** Return the URL of a view, relative to the page. */
export function viewUrl({ period, search = "", queue = "", series = "" }) {
  const query = new URLSearchParams();
  if (queue) query.set("queue", queue);
  if (search && !queue) query.set("search", search);
  if (series && queue) query.set("series", series);
  if (period !== DEFAULT_PERIOD) query.set("period", period);
  return query.size ? `?${query}` : location.pathname;
}
