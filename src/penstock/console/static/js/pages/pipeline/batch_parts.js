// The durations of batches and their parts, as bars to draw and as averages.

export const PARTS = [
  { key: "planMs", label: "plan", color: "--avg", meaning: "Spark asks for the end of the batch and plans it" },
  { key: "readMs", label: "read", color: "--depth", meaning: "tasks read the streams and fold events into rows" },
  { key: "insertMs", label: "insert", color: "--dequeued", meaning: "ClickHouse takes the rows" },
  { key: "checkpointMs", label: "checkpoint", color: "--completed", meaning: "Spark writes where it is" },
  { key: "otherMs", label: "other", color: "--edge", meaning: "the rest of the duration" },
];

const CUT_FACTOR = 4;
const MEASURED = ["planMs", "readMs", "insertMs", "checkpointMs"];

/** Return the duration of a batch that no part explains. */
const otherMs = (batch) => Math.max(0, batch.durationMs - MEASURED.reduce((total, key) => total + (batch[key] ?? 0), 0));

const withOther = (batch) => ({ ...batch, otherMs: otherMs(batch) });

/**
 * Return the duration at the top of the chart. One batch that took far longer than the others, such as the first one after a start,
 * would leave no room for them: it is cut.
 */
export function chartTop(batches) {
  const longest = durationPercentile(batches, 1) ?? 1;
  const usual = durationPercentile(batches, 0.9) ?? 1;
  return Math.max(1, longest > CUT_FACTOR * usual ? 2 * usual : longest);
}

/**
 * Return a bar per batch: `{ batch, isCut, parts: [{ key, color, y, height }] }`. Heights are shares of the chart, and `y` is
 * measured from its top.
 */
export function toBars(batches) {
  const top = chartTop(batches);
  return batches.map(withOther).map((batch) => {
    let y = 1;
    const parts = PARTS.map(({ key, color }) => {
      const height = Math.min(y, (batch[key] ?? 0) / top);
      y -= height;
      return { key, color, y, height };
    });
    return { batch, isCut: batch.durationMs > top, parts };
  });
}

/** Return the average of each part over the batches that have it; null if none has. */
export function averageParts(batches) {
  const complete = batches.map(withOther);
  return PARTS.map((part) => {
    const known = complete.map((batch) => batch[part.key]).filter((value) => value !== null);
    return { ...part, ms: known.length ? known.reduce((total, value) => total + value, 0) / known.length : null };
  });
}

/** Return the value below which this share of the durations lies, or null without batches. */
export function durationPercentile(batches, share) {
  const sorted = batches.map(({ durationMs }) => durationMs).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] : null;
}
