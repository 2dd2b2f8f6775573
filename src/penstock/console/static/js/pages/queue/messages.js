// The latest messages of a durable queue. Payloads are shown to those who may read them.

import { fetchRecentMessages } from "../../api/queue.js";
import { Badge } from "../../components/badge.js";
import { actionsColumn, DataTable } from "../../components/data_table.js";
import { JsonView } from "../../components/json_view.js";
import { Dialog } from "../../components/dialog.js";
import { Section } from "../../components/page.js";
import { DataState, Empty } from "../../components/states.js";
import { Time } from "../../components/time.js";
import { html, useState } from "../../html.js";
import { urlOf } from "../../location.js";
import { useSession } from "../../session.js";
import { useData } from "../../use_data.js";
import { PushDialog } from "./push_dialog.js";

const INTERVAL_MS = 5_000;
const LIMIT = 20;
const MAX_PARTITIONS = 5;
const STATUS_KINDS = { pending: "", processing: "info", completed: "ok", dead_letter: "bad" };
const BY_LAST_PUSH = (a, b) => Date.parse(b.lastPushAt ?? 0) - Date.parse(a.lastPushAt ?? 0);

/** The partitions with the latest pushes: the latest messages are in one of them. */
export const recentPartitions = (partitions) =>
  partitions.filter(({ lastPushAt }) => lastPushAt).toSorted(BY_LAST_PUSH).slice(0, MAX_PARTITIONS).map(({ name }) => name);

export function RecentMessages({ queue }) {
  const { can } = useSession();
  const [shown, setShown] = useState(null);
  const [cloned, setCloned] = useState(null);
  const names = recentPartitions(queue.partitions);
  const messages = useData((signal) => fetchRecentMessages(queue.name, names, LIMIT, signal), [queue.name, names.toSorted().join("\n")], {
    intervalMs: INTERVAL_MS,
  });
  const canRead = can("read:payload");
  const columns = [
    { key: "createdAt", label: "Pushed", render: ({ createdAt }) => html`<${Time} value=${createdAt} />` },
    { key: "partition", label: "Partition", className: "name" },
    { key: "transactionId", label: "Transaction id", className: "name", render: (message) => html`<a href=${messageUrl(message)}>${message.transactionId}</a>` },
    { key: "status", label: "State", render: ({ status }) => html`<${Badge} kind=${STATUS_KINDS[status]}>${status === "dead_letter" ? "dead" : status}<//>` },
  ];
  if (canRead) columns.push({ key: "data", label: "Payload", className: "payload", render: (message) => html`<${PayloadButton} message=${message} onShow=${setShown} />` });
  if (canRead && can("produce")) {
    columns.push(actionsColumn((message) => html`<button type="button" aria-label="Clone ${message.transactionId}" onClick=${() => setCloned(message)}>Clone</button>`));
  }
  const all = html`<a href=${urlOf("/console/messages", { queue: queue.name })}>Search all messages</a>`;
  return html`
    <${Section} title="Recent messages" className="recent" actions=${all}>
      <${DataState} state=${messages}>
        ${(rows) =>
          rows.length === 0
            ? html`<${Empty} title="The queue holds no message."><p>Push a test message with the button above.</p><//>`
            : html`<${DataTable} caption="Recent messages" columns=${columns} rows=${rows} rowKey=${({ id }) => id} />`}
      <//>
      ${shown && html`<${Dialog} title="Message ${shown.transactionId}" className="wide" onClose=${() => setShown(null)}><${JsonView} value=${shown.data} /><//>`}
      ${cloned && html`<${PushDialog} queue=${queue} message=${cloned} onClose=${() => setCloned(null)} onChange=${messages.refresh} />`}
    <//>
  `;
}

const messageUrl = ({ id, queue }) => urlOf(`/console/messages/${encodeURIComponent(id)}`, { queue });

function PayloadButton({ message, onShow }) {
  if (message.payloadProblem) return html`<span class="muted">${message.payloadProblem}</span>`;
  const text = JSON.stringify(message.data);
  return html`<button type="button" class="quiet small payload-text" title="Show the payload" onClick=${() => onShow(message)}><code>${text}</code></button>`;
}
