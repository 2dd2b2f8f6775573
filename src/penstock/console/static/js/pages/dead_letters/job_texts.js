// What a job does and how far it is, in words.

import { formatCount } from "../../format.js";

const NOUNS = { dead_letters: "dead letters", messages: "messages", tasks: "tasks" };
const ACTIONS = { requeue: "Requeue", purge: "Delete", dead_letter: "Dead-letter" };
const RESULTS = { requeue: "requeued", purge: "deleted", dead_letter: "dead-lettered" };
export const STATE_KINDS = { done: "ok", running: "info", waiting: "", cancelled: "", failed: "bad" };

export const hasEnded = (job) => !["waiting", "running"].includes(job.state);

export const describeAction = (job) => `${ACTIONS[job.kind]} ${NOUNS[job.subject]}`;

/** Say what a job selects: its queue and the other filters that are set. */
export function describeFilter(job) {
  const { queue, consumerGroup, partition, error, errorGroup, payload, letterIds, taskState } = job.filter;
  const texts = [
    letterIds && `${formatCount(letterIds.length)} selected`,
    queue && `queue ${queue}`,
    consumerGroup && `group ${consumerGroup}`,
    partition && `partition ${partition}`,
    errorGroup && `error group ${errorGroup.slice(0, 8)}`,
    error && `error contains “${error}”`,
    payload && `payload contains “${payload}”`,
    taskState,
  ].filter(Boolean);
  return texts.length ? texts.join(", ") : "all";
}

/** Say how many items a job has changed, of how many, and how many it skipped. */
export function describeProgress(job) {
  const total = job.totalIsExact ? `of ${formatCount(job.total)}` : `of at least ${formatCount(job.total)}`;
  const skipped = job.skipped ? `, ${formatCount(job.skipped)} skipped because they are leased` : "";
  return `${formatCount(job.changed)} ${total} ${RESULTS[job.kind]}${skipped}`;
}

/** Items per second since the start of a running job; null before the first. */
export function rateOf(job, now = Date.now()) {
  if (!job.startedAt || !job.changed) return null;
  const end = job.finishedAt ? Date.parse(job.finishedAt) : now;
  const seconds = (end - Date.parse(job.startedAt)) / 1_000;
  return seconds > 0.5 ? job.changed / seconds : null;
}

/** Return the result of a dry run. */
export function describeDryRun(result, noun) {
  const count = `${result.totalIsExact ? "" : "At least "}${formatCount(result.total)} ${noun}`;
  return result.total === 0 ? `No ${noun} match.` : `${count} match.`;
}

export const nounOf = (subject) => NOUNS[subject];
