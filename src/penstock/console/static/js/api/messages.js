// Messages of durable queues: search, one message and its life, and what an operator does with it.

import { NOT_FOUND, request } from "../api.js";

const PATH = "/api/v1/messages";
const STEP_TIMEOUT_MS = 30_000;

const messagePath = ({ partitionId, transactionId }) => `${partitionId}/${encodeURIComponent(transactionId)}`;

/** Fetch one step of a search: `{ messages, nextCursor, progress, indexedSince }`. */
export const searchStep = (params, signal) => request(`${PATH}/search`, { params, signal, timeoutMs: STEP_TIMEOUT_MS });

export const fetchLife = (message, signal) => request(`${PATH}/life/${messagePath(message)}`, { signal });

export const deleteMessage = (message) => request(`${PATH}/${messagePath(message)}`, { method: "DELETE" });

/** Push a dead message again; return the new message. */
export const requeueMessage = (message) => request(`${PATH}/${messagePath(message)}/retry`, { method: "POST", body: {} });

export const declareDead = (message, consumerGroup) =>
  request(`${PATH}/${messagePath(message)}/dlq`, { method: "POST", body: consumerGroup ? { consumerGroup } : {} });

/** Fetch the index keys and the groups of a queue; none if there is no such queue. */
export async function fetchSearchChoices(queue, signal) {
  if (!queue) return { indexKeys: [], groups: [] };
  try {
    const state = await request(`/api/v1/resources/queues/${encodeURIComponent(queue)}`, { params: { limit: 1 }, signal });
    return { indexKeys: state.options.indexKeys, groups: state.consumerGroups.map(({ name }) => name) };
  } catch (problem) {
    if (problem.status === NOT_FOUND) return { indexKeys: [], groups: [] };
    throw problem;
  }
}

export async function fetchQueueNames(signal) {
  const { queues } = await request("/api/v1/resources/queues", { params: { limit: 1_000 }, signal });
  return queues.map(({ name }) => name);
}

/**
 * Find a message by its id or transaction id, in one queue or in all, and return its life. If there is none, return the
 * task of a run queue with this id as `{ task }`, or null.
 */
export async function findLife(id, { queue, partitionId, transactionId }, signal) {
  if (partitionId && transactionId) return fetchLife({ partitionId, transactionId }, signal);
  const message = (isUuid(id) && (await searchFirst({ queue, id }, signal))) || (await searchFirst({ queue, transactionId: id }, signal));
  if (message) return fetchLife(message, signal);
  const task = await request(`/api/v1/tasks/${encodeURIComponent(id)}`, { signal, accepts: [NOT_FOUND] });
  return task.status === NOT_FOUND ? null : { task };
}

const isUuid = (text) => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text);

/** Repeat the steps of a search until a message matches. */
async function searchFirst(filters, signal) {
  let cursor = null;
  do {
    const step = await searchStep({ ...filters, cursor, limit: 1 }, signal);
    if (step.messages.length > 0) return step.messages[0];
    cursor = step.nextCursor;
  } while (cursor);
  return null;
}
