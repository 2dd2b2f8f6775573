// What happened in an incident, in order of time.

import { Time } from "../../components/time.js";
import { html } from "../../html.js";

const MAX_QUEUES = 20;

/** Return the events of an incident, the earliest first: `{ at, kind, text, by? }`. */
export function timelineOf({ openedAt, acknowledgedAt, acknowledgedBy, resolvedAt, resolution, queues, notes, notices }) {
  const shownQueues = queues.slice(0, MAX_QUEUES);
  const events = [
    { at: openedAt, kind: "opened", text: "The incident opened." },
    ...shownQueues.filter(({ queue }) => queue).map(({ queue, firedAt }) => ({ at: firedAt, kind: "queue", text: `${queue} fires.` })),
    ...shownQueues.filter(({ queue, resolvedAt: at }) => queue && at).map(({ queue, resolvedAt: at }) => ({ at, kind: "queue", text: `${queue} is ok.` })),
    ...notices.map(noticeEvent),
    ...notes.map(({ at, author, text }) => ({ at, kind: "note", text, by: author })),
    acknowledgedAt && { at: acknowledgedAt, kind: "acknowledged", text: `${acknowledgedBy} acknowledged it.` },
    resolvedAt && { at: resolvedAt, kind: "resolved", text: `The incident was resolved${resolution ? `: ${resolution}` : ""}.` },
  ];
  const order = ["opened", "queue", "acknowledged", "note", "delivery", "problem", "resolved"];
  return events
    .filter(Boolean)
    .sort((a, b) => Date.parse(a.at) - Date.parse(b.at) || order.indexOf(a.kind) - order.indexOf(b.kind));
}

function noticeEvent({ createdAt, sentAt, transition, channel, state, attempts, lastError }) {
  const what = `notice “${transition}” to ${channel}`;
  if (state === "sent") return { at: sentAt, kind: "delivery", text: `Sent the ${what}.` };
  if (state === "failed") return { at: createdAt, kind: "problem", text: `The ${what} failed after ${attempts} attempts: ${lastError}` };
  const reason = lastError ? ` after ${attempts} attempts: ${lastError}` : ".";
  return { at: createdAt, kind: "delivery", text: `The ${what} waits${reason}` };
}

export const Timeline = ({ incident }) => html`
  <ol class="timeline">
    ${timelineOf(incident).map(({ at, kind, text, by }, index) => html`
      <li key=${index} class=${kind}>
        <${Time} value=${at} isExact />
        <span>${text}${by ? html` <small>${by}</small>` : ""}</span>
      </li>
    `)}
  </ol>
`;
