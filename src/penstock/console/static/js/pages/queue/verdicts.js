// The four questions about a queue, answered from its state and its series: backed up, how long, at the limit, stuck.
// Each answer has `text` (yes, no or a word), `detail`, and a `kind`: "ok", "warn", "bad" or "unknown".

import { formatCount, formatDuration, formatPercent } from "../../format.js";
import { currentNumbers } from "../../series.js";

const TREND_SPAN_S = 300;
const MIN_TREND = 5;
const MIN_TREND_SHARE = 0.1;
const OLD_AFTER_MS = 60_000;
const OLD_TIMES_WAIT = 10;
const NEAR_LIMIT_SHARE = 0.8;

/** Answer all questions. `series` is null while the metrics are away; the state then answers what it can. */
export function answerQuestions(state, series, worstPartition) {
  const numbers = series ? currentNumbers(series) : {};
  const facts = { state, series, numbers, worstPartition, oldestMs: oldestAge(state, numbers) };
  return { backedUp: answerBackedUp(facts), howLong: answerHowLong(facts), atLimit: answerAtLimit(facts), stuck: answerStuck(facts) };
}

function answerBackedUp({ state: { depth, delayed }, series }) {
  const trend = series ? depthTrend(series, depth) : null;
  const figure = `${formatCount(depth)} waiting${delayed ? `, ${formatCount(delayed)} delayed` : ""}`;
  if (depth === 0) return { kind: "ok", text: "No", figure, detail: "Nothing waits." };
  if (trend === null) return { kind: "unknown", text: "Unknown", figure, detail: "Whether it grows is unknown without metrics." };
  const { change, spanS } = trend;
  const span = formatDuration(spanS * 1_000);
  if (change > 0) return { kind: "warn", text: "Yes, growing", figure, detail: `+${formatCount(change)} in ${span}.` };
  if (change < 0) {
    const emptyInMs = (depth / -change) * spanS * 1_000;
    return { kind: "ok", text: "Draining", figure, detail: `−${formatCount(-change)} in ${span}: empty in about ${formatDuration(emptyInMs)}.` };
  }
  return { kind: "ok", text: "Steady", figure, detail: `About the same for ${span}.` };
}

/**
 * Return by how much the depth changed over the last minutes that are known, 0 if it hardly did; null if too little is
 * known. The present depth comes from the state, which is newer than the series.
 */
export function depthTrend(series, depth) {
  const last = series.waiting.findLastIndex((value) => value !== null);
  if (last < 1 || series.isBehind) return null;
  const from = Math.max(0, last - Math.round(TREND_SPAN_S / series.step));
  const first = series.waiting.findIndex((value, i) => i >= from && value !== null);
  if (first < 0 || first === last) return null;
  const earlier = series.waiting[first];
  const change = depth - earlier;
  const isSmall = Math.abs(change) < Math.max(MIN_TREND, earlier * MIN_TREND_SHARE);
  return { change: isSmall ? 0 : change, spanS: series.x[last] - series.x[first] };
}

function answerHowLong({ numbers, series, state, oldestMs }) {
  if (numbers.p95Wait !== null && numbers.p95Wait !== undefined) {
    const average = series.avgWait.findLast((value) => value !== null);
    const kind = numbers.p95Wait >= OLD_AFTER_MS ? "warn" : "ok";
    const detail = `In the last minute, 95 % waited no longer; ${formatDuration(average)} on average.`;
    return { kind, text: formatDuration(numbers.p95Wait), figure: "p95 wait", detail };
  }
  const detail = series && !series.isBehind ? "Nothing was delivered in the last minute." : "Wait times are unknown without metrics.";
  if (state.depth === 0) return { kind: "ok", text: "No wait", figure: "nothing waits", detail };
  return { kind: "unknown", text: `${formatDuration(oldestMs)} so far`, figure: "the oldest waits", detail };
}

function answerAtLimit(facts) {
  const { state } = facts;
  if (state.paused) return { kind: "warn", text: "Paused", figure: runningFigure(state), detail: "Nothing is handed out until it is resumed." };
  return state.kind === "run" ? answerRunLimit(state) : answerConsumers(facts);
}

function answerRunLimit(state) {
  const { running, concurrency, environment, cap } = state;
  const environmentLimit = environment.concurrency === null ? null : Math.floor(environment.concurrency * environment.burst);
  const figure = runningFigure(state);
  if (cap?.reason === "no_consumers") return { kind: "bad", text: "No workers", figure, detail: cap.detail };
  if (environmentLimit !== null && environment.running >= environmentLimit) {
    const detail = `All run queues of the environment together: ${formatCount(environment.running)} of ${formatCount(environmentLimit)}.`;
    return { kind: "warn", text: "Yes, the environment's", figure, detail };
  }
  const limit = effectiveLimit(state);
  if (limit === null) return { kind: "ok", text: "No limit", figure, detail: "As many tasks run as workers take." };
  const share = running / limit;
  const owner = limit === concurrency ? "The queue's own limit" : "The environment's limit for one queue";
  const detail = `${owner} is ${formatCount(limit)}; ${formatPercent(share)} used.`;
  if (share >= 1) return { kind: "warn", text: "Yes", figure, detail };
  return { kind: "ok", text: share >= NEAR_LIMIT_SHARE ? "Nearly" : "No", figure, detail };
}

/** The number of tasks of this queue that may run at once: its own limit or the environment's; null without either. */
export function effectiveLimit({ concurrency, environment }) {
  const limits = [concurrency, environment?.concurrency].filter((limit) => limit !== null && limit !== undefined);
  return limits.length ? Math.min(...limits) : null;
}

/** A durable queue has no limit of its own: each group works on as many partitions at once as have consumers. */
function answerConsumers({ state, numbers }) {
  const leases = state.consumerGroups.reduce((total, group) => total + group.activeLeases, 0);
  const behind = Math.max(0, ...state.consumerGroups.map((group) => group.partitionsWithLag));
  const figure = runningFigure(state);
  if (state.depth > 0 && (state.cap?.reason === "no_consumers" || state.consumerGroups.length === 0)) {
    return { kind: "bad", text: "No consumers", figure, detail: state.cap?.detail ?? "No consumer has ever read from it." };
  }
  if (state.depth > 0 && leases === 0 && numbers.outRate === 0) {
    return { kind: "warn", text: "No leases", figure, detail: "Messages wait, no group holds a lease, and none was finished lately." };
  }
  const detail = `${countOf(leases, "lease")}; ${formatCount(behind)} of ${countOf(state.partitionCount, "partition")} with work.`;
  if (state.depth > 0 && behind === state.partitionCount && leases >= behind) {
    return { kind: "ok", text: "All partitions leased", figure, detail: `${detail} More consumers do not help, more partitions do.` };
  }
  return { kind: "ok", text: "No", figure, detail };
}

const runningFigure = (state) => {
  const limit = state.kind === "run" ? effectiveLimit(state) : null;
  return limit === null ? `${formatCount(state.running)} running` : `${formatCount(state.running)} of ${formatCount(limit)} running`;
};

function answerStuck({ state, numbers, worstPartition, oldestMs }) {
  const figure = `oldest ${formatDuration(oldestMs)}`;
  if (state.depth + state.running === 0) return { kind: "ok", text: "No", figure: "oldest –", detail: "Nothing waits or runs." };
  if (oldestMs === null) return { kind: "unknown", text: "Unknown", figure, detail: "The age of the oldest message is unknown." };
  const where = worstPartition ? ` Partition ${worstPartition.partition_name}, ${groupLabel(worstPartition.consumer_group)}.` : "";
  if (state.cap?.reason === "blocked_partition") return { kind: "bad", text: "Yes", figure, detail: state.cap.detail };
  if (oldestMs < Math.max(OLD_AFTER_MS, OLD_TIMES_WAIT * (numbers.p95Wait ?? 0))) {
    return { kind: "ok", text: "No", figure, detail: `The oldest is not much older than the usual wait.${where}` };
  }
  if (numbers.outRate) return { kind: "warn", text: "Perhaps", figure, detail: `Others are finished meanwhile.${where}` };
  if (numbers.outRate !== 0 && !state.paused) return { kind: "warn", text: "Perhaps", figure, detail: `Whether others are finished is unknown without metrics.${where}` };
  const reason = state.paused ? "The queue is paused." : "Nothing was finished lately.";
  return { kind: "bad", text: "Yes", figure, detail: `${reason}${where}` };
}

/**
 * Return the state with the figures of the live stream, if they are newer: `live` is the document of the stream, or null.
 * `cap` says what holds the queue back.
 */
export function mergeLive(state, live) {
  if (!live?.queue.known) return state;
  const { depth, running, delayed, dead, cappedBy: reason, capDetail: detail } = live.queue;
  const cap = reason ? { reason, detail } : null;
  if (state.asOf >= live.asOf) return { ...state, cap };
  const figures = Object.fromEntries(Object.entries({ depth, running, delayed, dead }).filter(([, value]) => value !== null));
  return { ...state, ...figures, cap };
}

/** The age in ms of the oldest unfinished message or waiting task. */
function oldestAge(state, numbers) {
  if (state.kind === "run") return state.oldestAgeMs ?? null;
  if (state.consumerGroups.length) return Math.max(...state.consumerGroups.map((group) => group.maxTimeLag)) * 1_000;
  return numbers.oldest ?? null;
}

/** A number with its noun: 1 lease, 2 leases. */
export const countOf = (count, noun) => `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;

export const QUEUE_MODE = "__QUEUE_MODE__";

/** A group in words; queue mode is the group of consumers that name none. */
export const groupLabel = (group) => (group === QUEUE_MODE ? "queue mode" : `group ${group}`);
