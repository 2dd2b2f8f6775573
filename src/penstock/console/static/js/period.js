// The time span that a page shows. It is part of the URL: a period until now, or a fixed time from zooming.

import { setQueryParams, useQueryParams } from "./location.js";

// Periods and their resolutions. Finer points would cost more and would be invisible at the width of a chart.
export const PERIODS = { "5m": "5s", "30m": "5s", "2h": "1m", "24h": "1m", "7d": "1h", "30d": "1h", "365d": "12h" };
const DEFAULT_PERIOD = "30m";
const REFRESH_INTERVALS_MS = { "5s": 2_000, "1m": 10_000, "1h": 60_000, "12h": 600_000 };

/**
 * Return the time span of the URL: either `period` (until now) or `from` and `to` in milliseconds; `params` for the
 * metrics route, `intervalMs` between refreshes (0 for a fixed span), and the functions that change it.
 */
export function usePeriod() {
  const [query] = useQueryParams();
  const span = readSpan(query);
  return {
    ...span,
    selectPeriod: (period) => setQueryParams({ period: period === DEFAULT_PERIOD ? "" : period, from: "", to: "" }),
    zoom: (from, to) => setQueryParams({ from: toIso(from), to: toIso(to) }, { push: true }),
  };
}

export function readSpan({ period, from, to }) {
  const [fromMs, toMs] = [Date.parse(from), Date.parse(to)];
  if (fromMs < toMs) {
    const params = { from: toIso(fromMs), to: toIso(toMs) };
    return { period: null, from: fromMs, to: toMs, params, intervalMs: 0, key: `${fromMs}-${toMs}` };
  }
  const known = Object.hasOwn(PERIODS, period) ? period : DEFAULT_PERIOD;
  const resolution = PERIODS[known];
  const params = { period: known, resolution };
  return { period: known, from: null, to: null, params, intervalMs: REFRESH_INTERVALS_MS[resolution], key: known };
}

const toIso = (ms) => new Date(ms).toISOString();
