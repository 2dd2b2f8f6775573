// The events of a message as a list, the first one first.

import { JsonView } from "../../components/json_view.js";
import { Time } from "../../components/time.js";
import { formatDateTime } from "../../format.js";
import { html } from "../../html.js";
import { timeZone } from "../../preferences.js";

const KINDS = { failed: "warn", lease_lost: "warn", dead: "bad", requeued: "info", delivered: "info", trace: "" };

/** What happened, in a few words. */
export function describeEvent({ event, attempts, leaseExpiresAt, deaths, traceEvent }) {
  const nth = attempts > 1 ? `, attempt ${attempts}` : "";
  switch (event) {
    case "pushed":
      return "Pushed";
    case "requeued_from":
      return `Pushed by a requeue, after ${deaths === 1 ? "one death" : `${deaths} deaths`}`;
    case "delivered":
      return leaseExpiresAt ? "Delivered, leased now" : "Delivered";
    case "failed":
      return `Failed${nth}`;
    case "lease_lost":
      return "Lease lost: it expired without an ack";
    case "dead":
      return `Dead after ${attempts === 1 ? "one attempt" : `${attempts} attempts`}`;
    case "requeued":
      return "Requeued";
    default:
      return `Trace: ${traceEvent}`;
  }
}

export function TimeLine({ message }) {
  timeZone.use();
  return html`
    <ol class="time-line">
      ${message.events.map((event, index) => html`<${LifeEvent} key=${`${event.at} ${index}`} event=${event} />`)}
    </ol>
    <details class="not-recorded">
      <summary>Not recorded</summary>
      <ul>${message.notRecorded.map((text) => html`<li key=${text}>${text}</li>`)}</ul>
    </details>
  `;
}

function LifeEvent({ event }) {
  const { at, consumerGroup, error, messageId, firstTransactionId, leaseExpiresAt } = event;
  return html`
    <li class=${KINDS[event.event] ?? ""}>
      <p>
        <b>${describeEvent(event)}</b>
        ${consumerGroup && consumerGroup !== "__QUEUE_MODE__" && html` <span class="muted">group ${consumerGroup}</span>`}
        <time datetime=${at} title=${at}>${formatDateTime(Date.parse(at))}</time>
      </p>
      ${error && html`<p class="error">${error}</p>`}
      ${leaseExpiresAt && html`<p class="muted">The lease ends <${Time} value=${leaseExpiresAt} />.</p>`}
      ${messageId && html`<p><a href="/console/messages/${messageId}">The new message</a></p>`}
      ${firstTransactionId && html`<p><a href="/console/messages/${encodeURIComponent(firstTransactionId)}">The first message</a></p>`}
      ${event.event === "trace" && html`<${Trace} event=${event} />`}
    </li>
  `;
}

const Trace = ({ event: { data, dataProblem, traceNames } }) => html`
  ${traceNames.length > 0 && html`<p class="muted">${traceNames.join(", ")}</p>`}
  ${dataProblem ? html`<p class="muted">${dataProblem}</p>` : html`<details><summary>Data</summary><${JsonView} value=${data} label="Data of the trace" /></details>`}
`;
