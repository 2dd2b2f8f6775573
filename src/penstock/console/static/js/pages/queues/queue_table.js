// The table of queues.

import { DataTable } from "../../components/data_table.js";
import { Sparkline } from "../../components/sparkline.js";
import { useNow } from "../../components/time.js";
import { formatCount, formatDuration, formatRate } from "../../format.js";
import { html } from "../../html.js";
import { CapBadge } from "./caps.js";

const AGE_INTERVAL_MS = 1_000;

export const queueUrl = (name) => `/console/queues/${encodeURIComponent(name)}`;

const COLUMNS = [
  { key: "name", label: "Queue", isSortable: true, firstOrder: "asc", render: QueueName },
  { key: "kind", label: "Kind", isSortable: true, firstOrder: "asc" },
  { key: "history", label: "Depth, last 30 min", render: History },
  { key: "depth", label: "Depth", title: "Messages or tasks waiting now", isSortable: true, render: Depth },
  { key: "wait", label: "Wait p95", title: "95 of 100 waited no longer, in the last five minutes", isSortable: true, render: ({ waitP95Ms }) => formatDuration(waitP95Ms) },
  { key: "oldest", label: "Oldest", title: "How long the oldest has been waiting", isSortable: true, render: ({ oldestAt }) => html`<${Age} since=${oldestAt} />` },
  { key: "rateIn", label: "In /s", title: "Per second, in the last minute", isSortable: true, render: ({ rateIn }) => formatRate(rateIn) },
  { key: "rateOut", label: "Out /s", title: "Acked per second, in the last minute", isSortable: true, render: ({ rateOut }) => formatRate(rateOut) },
  { key: "dead", label: "Dead", title: "Dead letters", isSortable: true, render: DeadLetters },
  { key: "cap", label: "Capped by", title: "What limits the queue now", render: (queue) => html`<${CapBadge} queue=${queue} />` },
].map((column) => ({ align: ["name", "kind", "history", "cap"].includes(column.key) ? undefined : "end", ...column }));

export const QueueTable = ({ queues, sort, onSort }) => html`
  <div class="section">
    <${DataTable} caption="Queues" columns=${COLUMNS} rows=${queues} rowKey=${rowKey} sort=${sort} onSort=${onSort} rowClass=${rowClass} />
  </div>
`;

const rowKey = ({ kind, name }) => `${kind} ${name}`;
const rowClass = ({ known }) => (known ? "" : "unknown");

function QueueName({ name }) {
  return html`<a class="queue-name" href=${queueUrl(name)} title=${name}>${name}</a>`;
}

function History({ name, depthHistory }) {
  return html`<${Sparkline} values=${depthHistory ?? []} label="Depth of ${name} in the last 30 minutes" />`;
}

function Depth({ depth, growth, delayed }) {
  const details = [growth && `+${formatCount(growth.messages)} in 10 min`, delayed && `${formatCount(delayed)} delayed`].filter(Boolean);
  return html`${formatCount(depth)}${details.length > 0 && html`<small class=${growth ? "growing" : ""}> ${details.join(", ")}</small>`}`;
}

function DeadLetters({ name, dead }) {
  if (!dead) return formatCount(dead);
  return html`<a class="some" href="/console/dead-letters?queue=${encodeURIComponent(name)}">${formatCount(dead)}</a>`;
}

function Age({ since }) {
  const now = useNow(AGE_INTERVAL_MS);
  return since === null ? "–" : formatDuration(Math.max(0, now - Date.parse(since)));
}
