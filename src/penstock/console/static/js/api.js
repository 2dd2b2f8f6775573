// Calls of the broker's API. A failed call throws an ApiError whose message tells the user what to do.

import { selectedEnvironment } from "./environment.js";

const TIMEOUT_MS = 10_000;

export class ApiError extends Error {
  constructor(detail, status) {
    super(detail);
    this.status = status;
  }
}

export const UNREACHABLE = 0;
export const UNAUTHORIZED = 401;
const NO_CONTENT = 204;

let csrfToken = null;

/** Return the headers of a request: the selected environment, and what proves that this page sends it. */
function requestHeaders(hasBody) {
  const headers = hasBody ? { "Content-Type": "application/json" } : {};
  if (csrfToken) headers["X-CSRF-Token"] = csrfToken;
  const environment = selectedEnvironment();
  if (environment) headers["X-Penstock-Environment"] = environment;
  return headers;
}

async function request(path, signal, { method = "GET", json } = {}) {
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: requestHeaders(json !== undefined),
      body: json === undefined ? null : JSON.stringify(json),
      signal: AbortSignal.any([signal, timeout]),
      cache: "no-store",
    });
  } catch (error) {
    if (signal.aborted) throw error;
    const problem = timeout.aborted ? `did not respond within ${TIMEOUT_MS / 1_000} s` : "is unreachable";
    throw new ApiError(`The broker ${problem}. If it is stopped, start it with “penstock up”.`, UNREACHABLE);
  }
  let body = null;
  try {
    body = await response.json();
  } catch (error) {
    if (signal.aborted) throw error;
  }
  return { response, body };
}

async function requestOk(path, signal, options) {
  const { response, body } = await request(path, signal, options);
  if (response.ok && (body || response.status === NO_CONTENT)) return body;
  const message =
    body?.detail ?? body?.title ?? `The broker returned status ${response.status}. See its log for details.`;
  throw new ApiError(message, response.status);
}

let lastRunQueues = { queues: [], total: 0 };

/**
 * List durable queues and run queues by name. While Redis is unreachable, return the last known run queues with
 * an unknown depth.
 */
export async function listQueues({ search, limit }, signal) {
  const query = new URLSearchParams({ limit: String(limit) });
  if (search) query.set("search", search);
  const [durable, run] = await Promise.all([
    requestOk(`/api/v1/resources/queues?${query}`, signal),
    requestOk(`/api/v1/run-queues?${query}`, signal).catch((error) => error),
  ]);
  const problems = run instanceof ApiError ? [run.message] : [];
  if (run instanceof Error && !problems.length) throw run;
  if (!problems.length) lastRunQueues = run;
  const runQueues = lastRunQueues.queues.map((queue) =>
    problems.length ? { name: queue.name, depth: null, isRunQueue: true, isOutdated: true } : { ...queue, isRunQueue: true },
  );
  const queues = [...durable.queues, ...runQueues];
  queues.sort((a, b) => (a.name < b.name ? -1 : 1));
  return { queues, total: durable.total + lastRunQueues.total, problems };
}

export function fetchQueueMetrics(queue, period, resolution, signal) {
  const query = new URLSearchParams({ period, resolution });
  return requestOk(`/api/v1/queues/${encodeURIComponent(queue)}/metrics?${query}`, signal);
}

export function fetchErrorGroups(queue, signal) {
  return requestOk(`/api/v1/dlq/groups?${new URLSearchParams({ queue, limit: "20" })}`, signal);
}

/** A platform that cannot take messages returns 503 with the usual body, so that status is no failure here. */
export async function fetchHealth(signal) {
  const { response, body } = await request("/health", signal);
  if (body?.parts) return body;
  throw new ApiError(`The broker returned status ${response.status} for /health. See its log for details.`, response.status);
}

/** Fetch the session, and keep its CSRF token for later requests. */
export async function fetchSession(signal) {
  const session = await requestOk("/api/v1/session", signal);
  csrfToken = session.csrfToken;
  return session;
}

export function logInWithToken(token) {
  return requestOk("/api/v1/session", new AbortController().signal, { method: "POST", json: { token } });
}

export function listTokens() {
  return requestOk("/api/v1/tokens?limit=1000", new AbortController().signal);
}

export function createToken(token) {
  return requestOk("/api/v1/tokens", new AbortController().signal, { method: "POST", json: token });
}

export function rotateToken(id, overlapS) {
  const path = `/api/v1/tokens/${encodeURIComponent(id)}/rotate`;
  return requestOk(path, new AbortController().signal, { method: "POST", json: { overlapS } });
}

export function revokeToken(id) {
  return requestOk(`/api/v1/tokens/${encodeURIComponent(id)}`, new AbortController().signal, { method: "DELETE" });
}

export function logOut() {
  return requestOk("/api/v1/session", new AbortController().signal, { method: "DELETE" });
}
