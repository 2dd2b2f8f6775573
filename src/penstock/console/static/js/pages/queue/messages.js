// The latest messages of a durable queue. Payloads are shown to those who may read them.

import { fetchRecentMessages } from "../../api/queue.js";
import { Badge } from "../../components/badge.js";
import { actionsColumn, DataTable } from "../../components/data_table.js";
import { Section } from "../../components/page.js";
import { DataState, Empty } from "../../components/states.js";
import { Time } from "../../components/time.js";
import { html, useState } from "../../html.js";
import { urlOf } from "../../location.js";
import { useSession } from "../../session.js";
import { useData } from "../../use_data.js";
import { PayloadCell } from "./payload_cell.js";
import { PushDialog } from "./push_dialog.js";
import { groupLabel } from "./verdicts.js";

const INTERVAL_MS = 5_000;
const LIMIT = 20;
const MAX_PARTITIONS = 5;
const STATUS_KINDS = { pending: "", processing: "info", completed: "ok", dead_letter: "bad" };
const BY_LAST_PUSH = (a, b) => Date.parse(b.lastPushAt ?? 0) - Date.parse(a.lastPushAt ?? 0);

/** The partitions with the latest pushes: the latest messages are in one of them. */
export const recentPartitions = (partitions) =>
  partitions.filter(({ lastPushAt }) => lastPushAt).toSorted(BY_LAST_PUSH).slice(0, MAX_PARTITIONS).map(({ name }) => name);

/** `group` is the group whose state of the messages is shown; empty if the queue has none. */
export function RecentMessages({ queue, group }) {
  const { can } = useSession();
  const [cloned, setCloned] = useState(null);
  const names = recentPartitions(queue.partitions);
  const selection = { queue: queue.name, partitions: names, group, limit: LIMIT };
  const messages = useData((signal) => fetchRecentMessages(selection, signal), [queue.name, group, names.toSorted().join("\n")], {
    intervalMs: INTERVAL_MS,
  });
  const canRead = can("read:payload");
  const columns = [
    { key: "createdAt", label: "Pushed", render: ({ createdAt }) => html`<${Time} value=${createdAt} />` },
    { key: "partition", label: "Partition", className: "name" },
    { key: "transactionId", label: "Transaction id", className: "name", render: (message) => html`<a href=${messageUrl(message)}>${message.transactionId}</a>` },
    { key: "status", label: group ? `State for ${groupLabel(group)}` : "State", render: ({ status }) => html`<${Badge} kind=${STATUS_KINDS[status]}>${status === "dead_letter" ? "dead" : status}<//>` },
  ];
  if (canRead) columns.push({ key: "data", label: "Payload", className: "payload", render: (message) => html`<${PayloadCell} name=${message.transactionId} payload=${message.data} problem=${message.payloadProblem} />` });
  if (canRead && can("produce")) {
    columns.push(actionsColumn((message) => html`<button type="button" aria-label="Clone ${message.transactionId}" onClick=${() => setCloned(message)}>Clone</button>`));
  }
  const all = html`<a href=${urlOf("/console/messages", { queue: queue.name })}>Search all messages</a>`;
  return html`
    <${Section} title="Recent messages" className="recent" actions=${all}>
      <${DataState} state=${messages}>
        ${(rows) =>
          rows.length === 0
            ? html`<${Empty} title="The queue holds no message.">${can("produce") && html`<p>Push a test message with the button above.</p>`}<//>`
            : html`<${DataTable} caption="Recent messages" columns=${columns} rows=${rows} rowKey=${({ id }) => id} />`}
      <//>
      ${cloned && html`<${PushDialog} queue=${queue} message=${cloned} onClose=${() => setCloned(null)} onChange=${messages.refresh} />`}
    <//>
  `;
}

const messageUrl = ({ id, queue }) => urlOf(`/console/messages/${encodeURIComponent(id)}`, { queue });
