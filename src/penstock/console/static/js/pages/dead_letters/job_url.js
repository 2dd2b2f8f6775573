// Links to the dialog that changes all messages or tasks that match.

import { urlOf } from "../../location.js";

const FIELDS = ["subject", "queue", "consumerGroup", "partition", "taskState", "from", "to", "payload"];

/**
 * Return the URL of the list of jobs. With `subject` ("messages" or "tasks") it opens the dialog for a new job, with
 * these fields filled in: queue, consumerGroup, partition, taskState, from, to, payload.
 */
export const jobUrl = (fields = {}) => urlOf("/console/dead-letters", { tab: "jobs", ...fields });

/** Return the fields of a new job that the URL has. */
export const readJobFields = (params) => Object.fromEntries(FIELDS.filter((name) => params[name]).map((name) => [name, params[name]]));

/** Return the URL of a job on the messages of a search, or null if a job cannot select them by its filters. */
export function searchJobUrl({ text, queue, ...filters }) {
  const supported = ["consumerGroup", "partition", "from", "to"];
  if (!queue || Object.keys(filters).some((name) => !supported.includes(name))) return null;
  return jobUrl({ subject: "messages", queue, payload: text, ...filters });
}
