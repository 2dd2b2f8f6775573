// The consumer groups of a durable queue and how far each is behind.

import { Badge } from "../../components/badge.js";
import { actionsColumn, DataTable } from "../../components/data_table.js";
import { Section } from "../../components/page.js";
import { Empty } from "../../components/states.js";
import { formatCount, formatDuration } from "../../format.js";
import { html, useState } from "../../html.js";
import { useSession } from "../../session.js";
import { SeekDialog } from "./seek_dialog.js";
import { groupLabel, QUEUE_MODE } from "./verdicts.js";

const STATE_KINDS = { consuming: "ok", waiting: "warn", idle: "" };
const BY_LAG = (a, b) => b.totalLag - a.totalLag || a.name.localeCompare(b.name);

export function Groups({ queue, onChange }) {
  const { can } = useSession();
  const [seeking, setSeeking] = useState(null);
  const groups = queue.consumerGroups.toSorted(BY_LAG);
  const columns = [
    { key: "name", label: "Group", className: "name", render: ({ name }) => (name === QUEUE_MODE ? groupLabel(name) : name) },
    { key: "state", label: "State", render: ({ state }) => html`<${Badge} kind=${STATE_KINDS[state]}>${state}<//>` },
    { key: "totalLag", label: "Lag", align: "end", title: "messages not finished", render: ({ totalLag }) => formatCount(totalLag) },
    { key: "processing", label: "Running", align: "end", render: ({ processing }) => formatCount(processing) },
    { key: "activeLeases", label: "Leases", align: "end", render: ({ activeLeases }) => formatCount(activeLeases) },
    { key: "partitionsWithLag", label: "Behind in", align: "end", title: "partitions with unfinished messages", render: ({ partitionsWithLag }) => formatCount(partitionsWithLag) },
    { key: "maxTimeLag", label: "Oldest", align: "end", render: ({ maxTimeLag }) => (maxTimeLag ? formatDuration(maxTimeLag * 1_000) : "–") },
    { key: "deadLetter", label: "Dead", align: "end", render: ({ deadLetter }) => formatCount(deadLetter) },
  ];
  if (can("operate")) {
    columns.push(actionsColumn((group) => html`<button type="button" aria-label="Seek ${groupLabel(group.name)}" onClick=${() => setSeeking(group.name)}>Seek</button>`));
  }
  return html`
    <${Section} title="Consumer groups" className="groups">
      ${groups.length === 0
        ? html`<${Empty} title="No consumer group yet."><p>The first pop creates one.</p><//>`
        : html`<${DataTable} caption="Consumer groups" columns=${columns} rows=${groups} rowKey=${({ name }) => name} />`}
      ${seeking !== null &&
      html`<${SeekDialog} queue=${queue} group=${seeking} onClose=${() => setSeeking(null)} onChange=${onChange} />`}
    <//>
  `;
}
