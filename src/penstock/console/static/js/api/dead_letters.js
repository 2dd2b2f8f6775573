// Dead letters, their error groups, and jobs on many dead letters, messages or tasks.

import { request } from "../api.js";

const groupPath = (id) => `/api/v1/dlq/error-groups/${encodeURIComponent(id)}`;
const letterPath = (id) => `/api/v1/dlq/letters/${encodeURIComponent(id)}`;
const jobPath = (id) => `/api/v1/jobs/${encodeURIComponent(id)}`;

/** `params`: queue, state (a list), hours, limit, offset. */
export const fetchErrorGroups = (params, signal) => request("/api/v1/dlq/groups", { params, signal });

/** A group of a run queue needs the name of its queue. */
export const fetchErrorGroup = (id, params, signal) => request(groupPath(id), { params, signal });

/** `change`: state, ignoredUntil, owner, note. Without a queue it applies to all queues that have the group. */
export const changeErrorGroup = (id, queue, change) =>
  request(groupPath(id), { method: "PATCH", params: { queue }, body: change });

export const fetchDeadLetterCounts = (signal) => request("/api/v1/dlq/status", { params: { limit: 1000 }, signal });

/** `params`: queue, errorGroup, cursor, limit. */
export const fetchDeadLetters = (params, signal) => request("/api/v1/dlq", { params, signal });

export const fetchDeadLetter = (id, signal) => request(letterPath(id), { signal });
export const requeueDeadLetter = (id) => request(`${letterPath(id)}/requeue`, { method: "POST" });
export const deleteDeadLetter = (id) => request(letterPath(id), { method: "DELETE" });

/** Create a job on dead letters, or with `dryRun` only count what it would change. `kind`: "requeue" or "purge". */
export const createDeadLetterJob = (kind, body) => request(`/api/v1/dlq/${kind}`, { method: "POST", body });

/** Create a job on messages or waiting tasks, or with `dryRun` only count what it would change. */
export const createBulkJob = (body) => request("/api/v1/jobs", { method: "POST", body });

export const fetchJobs = (params, signal) => request("/api/v1/jobs", { params, signal });
export const fetchJob = (id, signal) => request(jobPath(id), { signal });
export const cancelJob = (id) => request(`${jobPath(id)}/cancel`, { method: "POST" });
