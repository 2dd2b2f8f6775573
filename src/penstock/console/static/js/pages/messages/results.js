// The messages that match, how far the search is, and the buttons that end it or continue it.

import { DataTable } from "../../components/data_table.js";
import { MessageState, messageUrl } from "../../components/message_state.js";
import { Progress } from "../../components/progress.js";
import { Empty, Idle, Unavailable } from "../../components/states.js";
import { Time } from "../../components/time.js";
import { formatCount } from "../../format.js";
import { html } from "../../html.js";
import { urlOf } from "../../location.js";
import { describeProgress } from "./search_filters.js";

const PREVIEW_LENGTH = 140;

const COLUMNS = [
  { key: "createdAt", label: "Pushed", render: ({ createdAt }) => html`<${Time} value=${createdAt} />` },
  { key: "queue", label: "Queue", render: ({ queue }) => html`<a href="/console/queues/${encodeURIComponent(queue)}">${queue}</a>` },
  { key: "partition", label: "Partition" },
  { key: "transactionId", label: "Transaction id", render: (message) => html`<a href=${messageUrl(message)}><code>${message.transactionId}</code></a>` },
  { key: "status", label: "State", render: ({ status }) => html`<${MessageState} status=${status} />` },
  { key: "retryCount", label: "Failed", align: "end", title: "failed attempts", render: ({ retryCount }) => formatCount(retryCount) },
  { key: "data", label: "Payload", className: "preview", render: (message) => html`<${Preview} message=${message} />` },
];

export function Results({ search, filters }) {
  const { status, messages, problem, indexedSince } = search;
  if (status === "idle") {
    return html`<${Empty} title="Enter what you know of the message."><p>An id is found at once; a text in the payload is looked for in every message that the other fields leave.</p><//>`;
  }
  return html`
    <${SearchProgress} search=${search} />
    ${problem && html`<${Unavailable} problem=${problem} />`}
    ${indexedSince && html`<p class="muted">The key is indexed for messages pushed since <${Time} value=${indexedSince} isExact />. Earlier ones are found by text.</p>`}
    ${status === "done" && messages.length === 0 && html`<${NoMatch} filters=${filters} />`}
    ${messages.length > 0 && html`<${DataTable} caption="Messages that match" columns=${COLUMNS} rows=${messages} rowKey=${({ id }) => id} />`}
    ${status === "paused" && html`<p class="search-more"><button type="button" onClick=${search.resume}>Show more</button></p>`}
  `;
}

function SearchProgress({ search }) {
  const { status, progress, messages, cancel, resume } = search;
  const isRunning = status === "running";
  const count = `${formatCount(messages.length)} ${messages.length === 1 ? "message" : "messages"}${status === "done" ? "" : " so far"}`;
  return html`
    <div class="search-progress">
      <${Progress} label="Progress of the search" value=${status === "done" ? 1 : progress?.examined} total=${status === "done" ? 1 : progress?.total}>
        ${progress ? `${describeProgress(progress)}, ` : ""}${count}${status === "cancelled" ? " (cancelled)" : ""}
      <//>
      ${isRunning && html`<button type="button" onClick=${cancel}>Cancel</button>`}
      ${(status === "cancelled" || status === "failed") && html`<button type="button" onClick=${resume}>Continue</button>`}
    </div>
  `;
}

function NoMatch({ filters }) {
  const { key, value, queue } = filters;
  if (!key) return html`<${Idle}>No message matches.<//>`;
  return html`<${Idle}>No indexed message has this value. <a href=${urlOf("/console/messages", { queue, text: value })}>Search the payloads for it</a><//>`;
}

function Preview({ message: { data, dataProblem } }) {
  if (dataProblem) return html`<span class="muted" title=${dataProblem}>withheld</span>`;
  const text = JSON.stringify(data);
  return html`<code>${text.length > PREVIEW_LENGTH ? `${text.slice(0, PREVIEW_LENGTH)}…` : text}</code>`;
}
