// The last two minutes of a broker process, second by second.

/** Return the highest of the last `seconds` values, or null if there are none. */
export function highestOf(values, seconds) {
  const recent = values.slice(-seconds);
  return recent.length ? Math.max(...recent) : null;
}

/** Return the average number of requests in a batch per second; null in seconds without a batch. */
export const batchSizes = ({ batches, batchRequests }) =>
  batches.map((count, i) => (count ? batchRequests[i] / count : null));

/** Return the average number of requests in a batch over all seconds, or null without batches. */
export function averageBatchSize({ batches, batchRequests }) {
  const total = sum(batches);
  return total ? sum(batchRequests) / total : null;
}

export const batchesPerSecond = ({ batches }) => (batches.length ? sum(batches) / batches.length : null);

/** Add the batching figures of all processes per operation. Averages are weighted by batches. */
export function combineBatching(workers) {
  const rows = new Map();
  for (const { batching } of workers) {
    for (const [operation, figures] of Object.entries(batching)) {
      const row = rows.get(operation) ?? { operation, requests: 0, items: 0, batches: 0, busyMs: 0, failures: 0, pending: 0, inFlight: 0 };
      for (const key of ["requests", "items", "batches", "failures", "pending", "inFlight"]) row[key] += figures[key];
      row.busyMs += figures.averageMs * figures.batches;
      rows.set(operation, row);
    }
  }
  return [...rows.values()];
}

const sum = (values) => values.reduce((total, value) => total + value, 0);
