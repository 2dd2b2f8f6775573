// The state of a message as a badge, and the link to its page.

import { html } from "../html.js";
import { urlOf } from "../location.js";
import { Badge } from "./badge.js";

export const MESSAGE_STATES = [
  ["pending", "pending", ""],
  ["processing", "leased", "info"],
  ["completed", "completed", "ok"],
  ["dead_letter", "dead", "bad"],
];

export function MessageState({ status }) {
  const [, label, kind] = MESSAGE_STATES.find(([key]) => key === status) ?? [status, status ?? "–", ""];
  return html`<${Badge} kind=${kind}>${label}<//>`;
}

/** The page of a message. With its partition the page needs no search. */
export const messageUrl = ({ id, partitionId, transactionId }) =>
  urlOf(`/console/messages/${encodeURIComponent(id)}`, { partitionId, transactionId });
