// The metrics pipeline: its state, its batches and what it could not count.

import { request } from "../api.js";

export const fetchPipeline = (signal) => request("/api/v1/pipeline", { signal });

export const fetchLosses = (signal) => request("/api/v1/pipeline/losses", { signal });
