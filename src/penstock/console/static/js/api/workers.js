// The broker processes: their state now, and their measurements over time.

import { request } from "../api.js";

export const fetchWorkers = (signal) => request("/api/v1/status/workers", { signal });

/** Fetch event loop, connections and requests over time. `params`: `from`, `to`, and `hostname` and `worker` of one process. */
export const fetchWorkerMetrics = (params, signal) => request("/api/v1/analytics/worker-metrics", { params, signal });

/** Fetch CPU and memory over time. */
export const fetchSystemMetrics = (params, signal) => request("/api/v1/analytics/system-metrics", { params, signal });
