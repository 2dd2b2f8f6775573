// Requests to the broker's API. A failed request throws an ApiProblem whose message says what to do.

import { selectedEnvironment } from "./environment.js";

const TIMEOUT_MS = 10_000;
export const UNREACHABLE = 0;
export const UNAUTHORIZED = 401;
export const NOT_FOUND = 404;
export const SERVICE_UNAVAILABLE = 503;
const NO_CONTENT = 204;

export class ApiProblem extends Error {
  name = "ApiProblem";

  constructor(message, { status, title = null, detail = null, fields = {} }) {
    super(message);
    Object.assign(this, { status, title, detail, fields });
  }
}

let csrfToken = null;

/** Send this token with every request from now on: it proves that the console sends them. */
export function setCsrfToken(token) {
  csrfToken = token;
}

/** Return the headers of a request: the selected environment and the CSRF token. */
export function requestHeaders(hasBody = false) {
  const headers = hasBody ? { "Content-Type": "application/json" } : {};
  if (csrfToken) headers["X-CSRF-Token"] = csrfToken;
  const environment = selectedEnvironment();
  if (environment) headers["X-Penstock-Environment"] = environment;
  return headers;
}

/**
 * Send a request and return the JSON of its response, or null if there is none. `params` is the query; empty and
 * unknown values are omitted, a list becomes a repeated parameter. `accepts` are statuses of failures whose body is
 * returned, too.
 */
export async function request(path, { method = "GET", params, body, signal, timeoutMs = TIMEOUT_MS, accepts = [] } = {}) {
  const response = await send(withQuery(path, params), { method, body, signal, timeoutMs });
  const json = await readJson(response, signal);
  const isAccepted = response.ok || accepts.includes(response.status);
  if (isAccepted && (json !== null || response.status === NO_CONTENT)) return json;
  throw problemOf(response, json);
}

async function send(url, { method, body, signal, timeoutMs }) {
  const timeout = AbortSignal.timeout(timeoutMs);
  try {
    return await fetch(url, {
      method,
      headers: requestHeaders(body !== undefined),
      body: body === undefined ? null : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
      cache: "no-store",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    const reason = timeout.aborted ? `did not respond within ${timeoutMs / 1_000} s` : "is unreachable";
    const message = `The broker ${reason}. If it is stopped, start it with “penstock up”.`;
    throw new ApiProblem(message, { status: UNREACHABLE, title: "Broker unreachable" });
  }
}

/** Return the JSON of a response, or null if its body is not JSON. */
async function readJson(response, signal) {
  try {
    return await response.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    return null;
  }
}

/** Return the problem that a failed response describes. */
export function problemOf(response, json) {
  const { title = null, detail = null, ...fields } = json ?? {};
  const message = detail ?? title ?? `The broker returned status ${response.status}. See its log for details.`;
  return new ApiProblem(message, { status: response.status, title, detail, fields });
}

export function withQuery(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item !== null && item !== undefined && item !== "") query.append(name, item);
    }
  }
  return query.size ? `${path}?${query}` : path;
}
