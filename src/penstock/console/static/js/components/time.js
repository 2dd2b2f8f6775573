// A time: how long ago or in how long, with the exact time as a tooltip.

import { formatDateTime, formatRelative } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { timeZone } from "../preferences.js";

const INTERVAL_MS = 10_000;

/** `value` is a time in ISO 8601 or in milliseconds; without one, show `missing`. */
export function Time({ value, missing = "–", isExact = false }) {
  timeZone.use();
  useNow(INTERVAL_MS);
  if (value === null || value === undefined) return html`<span class="muted">${missing}</span>`;
  const ms = typeof value === "number" ? value : Date.parse(value);
  const exact = formatDateTime(ms);
  return html`<time datetime=${new Date(ms).toISOString()} title=${exact}>${isExact ? exact : formatRelative(ms - Date.now())}</time>`;
}

/** Render the component again every `intervalMs`. */
export function useNow(intervalMs) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), intervalMs);
    return () => clearInterval(timer);
  }, [intervalMs]);
  return now;
}
