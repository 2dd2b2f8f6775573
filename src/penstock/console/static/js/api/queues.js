// The metrics of queues.

import { request } from "../api.js";

/** Fetch the series of a queue as columns: of a `period` until now, or of the time between `start` and `end`. */
export function fetchQueueMetrics(queue, params, signal) {
  return request(`/api/v1/queues/${encodeURIComponent(queue)}/metrics`, {
    params: { ...params, format: "columns" },
    signal,
  });
}
