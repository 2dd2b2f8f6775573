// One queue of either kind: its state, groups, partitions and messages, and what an operator does with it.

import { NOT_FOUND, request, SERVICE_UNAVAILABLE } from "../api.js";

const durablePath = (queue) => `/api/v1/resources/queues/${encodeURIComponent(queue)}`;
const runPath = (queue) => `/api/v1/run-queues/${encodeURIComponent(queue)}`;
const pathOf = ({ kind, name }) => (kind === "run" ? runPath(name) : durablePath(name));
const MAX_PARTITIONS = 200;
const ENVIRONMENT_LIMITS = "/api/v1/environments/-/run-limits";

/** Fetch the state of a queue, with its `kind`: "durable" or "run". Names are unique over both kinds. */
export async function fetchQueue(name, knownKind, signal) {
  const kind = knownKind ?? (await fetchKind(name, signal));
  if (kind !== "run") {
    try {
      const state = await request(durablePath(name), { params: { limit: MAX_PARTITIONS }, signal });
      return { ...state, kind: "durable", dead: state.totals.deadLetter };
    } catch (problem) {
      if (problem.status !== NOT_FOUND || kind) throw problem;
    }
  }
  const [state, environment] = await Promise.all([request(runPath(name), { signal }), request(ENVIRONMENT_LIMITS, { signal })]);
  return { ...state, kind: "run", environment };
}

/** Return the kind of a queue, or null while Redis is away: then only the queue itself tells. */
async function fetchKind(name, signal) {
  try {
    return (await request(`/api/v1/console/queues/${encodeURIComponent(name)}/kind`, { signal })).kind;
  } catch (problem) {
    if (problem.status !== SERVICE_UNAVAILABLE) throw problem;
    return null;
  }
}

export const pauseQueue = (queue) => request(`${pathOf(queue)}/pause`, { method: "POST" });
export const resumeQueue = (queue) => request(`${pathOf(queue)}/resume`, { method: "POST" });
export const purgeQueue = (queue) => request(`${pathOf(queue)}/purge`, { method: "POST", timeoutMs: 120_000 });
export const deleteQueue = (queue) => request(pathOf(queue), { method: "DELETE", timeoutMs: 120_000 });

export const configureQueue = (queue, body) => request("/api/v1/configure", { method: "POST", body: { queue, ...body } });

/** Set how many tasks of a run queue may run at once; null removes the limit. */
export const setLimit = (queue, concurrency) => request(`${runPath(queue)}/limits`, { method: "PUT", body: { concurrency } });

/** Move a group: `target` is `{ toEnd: true }` or `{ timestamp }`. Without a partition, in the whole queue. */
export function seekGroup(queue, group, partition, target) {
  const path = `/api/v1/consumer-groups/${encodeURIComponent(group)}/queues/${encodeURIComponent(queue)}`;
  const partitionPath = partition ? `/partitions/${encodeURIComponent(partition)}` : "";
  return request(`${path}${partitionPath}/seek`, { method: "POST", body: target });
}

/** Push a message; return its receipt. */
export async function pushMessage(item) {
  const response = await request("/api/v1/push", { method: "POST", body: { items: [item] } });
  return Array.isArray(response) ? response[0] : response;
}

/** Enqueue a task; return its receipt. */
export async function enqueueTask(queue, task) {
  const { tasks } = await request(`${runPath(queue)}/tasks`, { method: "POST", body: task });
  return tasks[0];
}

/** Fetch some tasks that run, the next ones to run, and some that are delayed: up to `limit` of each. */
export async function fetchCurrentTasks(queue, limit, signal) {
  return (await request(`${runPath(queue)}/tasks`, { params: { limit }, signal })).tasks;
}

/** Fetch the partitions in which a group is behind: the oldest first, or those with the most messages. */
export const fetchWorstPartitions = (queue, sort, limit, signal) =>
  request("/api/v1/consumer-groups/lagging", { params: { queue, sort, minLagSeconds: 0, limit }, signal });

/** Fetch the latest messages of some partitions, the newest first, with their state for a group. */
export async function fetchRecentMessages({ queue, partitions, group, limit }, signal) {
  const params = { queue, consumerGroup: group, limit };
  const pages = await Promise.all(
    partitions.map((partition) => request("/api/v1/messages", { params: { ...params, partition }, signal })),
  );
  const messages = pages.flatMap((page) => page.messages);
  return messages.sort((a, b) => Date.parse(b.createdAt) - Date.parse(a.createdAt)).slice(0, limit);
}
