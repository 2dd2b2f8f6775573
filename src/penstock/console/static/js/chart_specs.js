// What each chart of a card shows: its lines, its scale and its legend.

import { formatCount, formatDuration, formatDurationTick, formatRate, formatRateTick } from "./format.js";

const DURATION_STEPS_MS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500,
  ...[1, 2, 5, 10, 20, 30].map((s) => s * 1_000),
  ...[1, 2, 5, 10, 20, 30].map((m) => m * 60_000),
  ...[1, 2, 4, 6, 12].map((h) => h * 3_600_000),
  ...[1, 2, 5, 10, 20, 50, 100].map((d) => d * 86_400_000),
];
const INTEGER_STEPS = [1, 2, 5].flatMap((n) => Array.from({ length: 10 }, (_, e) => n * 10 ** e)).sort((a, b) => a - b);

// Nothing was observed there: the last value is repeated.
const CARRIED_LINE = { dash: [3, 3], alpha: 0.55, fill: 0.05 };

// `minTop` is the least upper end of the scale, so that an idle queue is a flat line near zero instead of noise.
export const CHARTS = [
  {
    title: "Depth",
    tooltip: "messages or tasks waiting, and delayed tasks",
    format: formatCount,
    axis: { values: formatCount, incrs: INTEGER_STEPS },
    minTop: 4,
    lines: [
      { key: "carried", color: "--depth", ...CARRIED_LINE },
      { key: "depth", color: "--depth", fill: 0.16, width: 1.6 },
      { key: "delayed", color: "--delayed", width: 1.4 },
    ],
    legend: [
      { label: "max", key: "waiting", color: "--depth" },
      { label: "delayed", key: "delayed", color: "--delayed", hideIfEmpty: true },
    ],
  },
  {
    title: "Rate",
    tooltip: "messages or tasks per second: pushed or enqueued, popped or dequeued, acked",
    format: formatRate,
    axis: { values: formatRateTick },
    minTop: 1,
    lines: [
      { key: "enqueued", color: "--enqueued", fill: 0.12, width: 1.4 },
      { key: "dequeued", color: "--dequeued", width: 1.4 },
      { key: "completed", color: "--completed", width: 1.4 },
    ],
    legend: [
      { label: "in", key: "enqueued", color: "--enqueued" },
      { label: "popped", key: "dequeued", color: "--dequeued" },
      { label: "acked", key: "completed", color: "--completed" },
    ],
  },
  {
    title: "Wait",
    tooltip: "time from ready for delivery to delivered",
    format: formatDuration,
    axis: { values: formatDurationTick, incrs: DURATION_STEPS_MS },
    minTop: 10,
    lines: [
      { key: "p95Wait", color: "--p95", fill: 0.1, width: 1.4 },
      { key: "avgWait", color: "--avg", width: 1.4 },
    ],
    legend: [
      { label: "avg", key: "avgWait", color: "--avg" },
      { label: "p95", key: "p95Wait", color: "--p95" },
    ],
  },
];

/** How many run at once, and how many may. */
export const RUNNING_CHART = {
  title: "Running",
  tooltip: "messages under a lease or running tasks, and the limit of running tasks",
  format: formatCount,
  axis: { values: formatCount, incrs: INTEGER_STEPS },
  minTop: 4,
  lines: [
    { key: "carriedRunning", color: "--dequeued", ...CARRIED_LINE },
    { key: "observedRunning", color: "--dequeued", fill: 0.14, width: 1.6 },
    { key: "limit", color: "--bad", dash: [6, 4], width: 1.4 },
  ],
  legend: [
    { label: "max", key: "running", color: "--dequeued" },
    { label: "limit", key: "limit", color: "--bad", hideIfEmpty: true },
  ],
};

/** How old the oldest waiting message is: a line that only rises means that something is stuck. */
export const OLDEST_CHART = {
  title: "Oldest",
  tooltip: "age of the oldest waiting message or task",
  format: formatDuration,
  axis: { values: formatDurationTick, incrs: DURATION_STEPS_MS },
  minTop: 1_000,
  lines: [
    { key: "carriedOldest", color: "--delayed", ...CARRIED_LINE },
    { key: "observedOldest", color: "--delayed", fill: 0.14, width: 1.6 },
  ],
  legend: [{ label: "age", key: "oldest", color: "--delayed" }],
};

const FAILURE_LINES = [
  { key: "retried", label: "retried", color: "--retried" },
  { key: "dead", label: "dead", color: "--dead" },
  { key: "expired", label: "expired", color: "--expired" },
];

/**
 * Return the chart of failures. `selected` is the key of the only line to draw, or empty to draw all.
 * `urlOfSeries(key)` returns the URL that selects a line; an empty key selects all.
 */
export function failureChart(selected, urlOfSeries) {
  return {
    title: "Failed /min",
    tooltip: "per minute: failed attempts that are retried, new dead letters, and messages or tasks that expired unread",
    format: formatRate,
    axis: { values: formatRateTick },
    minTop: 1,
    lines: FAILURE_LINES.filter(({ key }) => !selected || key === selected).map((line) => ({
      ...line,
      width: 1.4,
      fill: line.key === selected ? 0.12 : 0,
    })),
    legend: FAILURE_LINES.map((item) => ({
      ...item,
      href: urlOfSeries(item.key === selected ? "" : item.key),
      isSelected: item.key === selected,
    })),
  };
}
