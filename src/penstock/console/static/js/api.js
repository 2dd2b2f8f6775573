// The API as the page uses it. A failure is a Problem whose message tells the reader what to do.

const TIMEOUT_MS = 10_000;

export class Problem extends Error {
  constructor(detail, status) {
    super(detail);
    this.status = status;
  }
}

export const UNREACHABLE = 0;

async function get(path, signal) {
  const limit = AbortSignal.timeout(TIMEOUT_MS);
  let response;
  try {
    response = await fetch(path, { signal: AbortSignal.any([signal, limit]), cache: "no-store" });
  } catch (error) {
    if (signal.aborted) throw error;
    const what = limit.aborted ? `did not answer within ${TIMEOUT_MS / 1_000} s` : "cannot be reached";
    throw new Problem(`The broker ${what}. If it was stopped, start it with “penstock up”.`, UNREACHABLE);
  }
  let body = null;
  try {
    body = await response.json();
  } catch (error) {
    if (signal.aborted) throw error;
  }
  return { response, body };
}

async function getOk(path, signal) {
  const { response, body } = await get(path, signal);
  if (response.ok && body) return body;
  const said = body?.detail ?? body?.title ?? `The broker answered ${response.status}. Its log says more.`;
  throw new Problem(said, response.status);
}

let runQueues = { queues: [], total: 0 };

/** Durable queues and run queues by name. While Redis is away, run queues are shown as they were last seen. */
export async function listQueues({ search, limit }, signal) {
  const query = new URLSearchParams({ limit: String(limit) });
  if (search) query.set("search", search);
  const [durable, run] = await Promise.all([
    getOk(`/api/v1/resources/queues?${query}`, signal),
    getOk(`/api/v1/run-queues?${query}`, signal).catch((error) => error),
  ]);
  const problems = run instanceof Problem ? [run.message] : [];
  if (run instanceof Error && !problems.length) throw run;
  if (!problems.length) runQueues = run;
  const queues = [...durable.queues, ...runQueues.queues.map((queue) => ({ ...queue, runs: true }))];
  queues.sort((one, other) => (one.name < other.name ? -1 : 1));
  return { queues, total: durable.total + runQueues.total, problems };
}

export function queueMetrics(queue, period, resolution, signal) {
  const query = new URLSearchParams({ period, resolution });
  return getOk(`/api/v1/queues/${encodeURIComponent(queue)}/metrics?${query}`, signal);
}

/** A degraded platform answers 503 with the same body, which is an answer and not a failure. */
export async function health(signal) {
  const { response, body } = await get("/health", signal);
  if (body?.parts) return body;
  throw new Problem(`The broker answered ${response.status} to /health.`, response.status);
}
