// One row per broker process behind this port, with its last two minutes.

import { DataTable } from "../../components/data_table.js";
import { LoadBadge } from "../../components/load_badge.js";
import { Sparkline } from "../../components/sparkline.js";
import { Time } from "../../components/time.js";
import { formatBytes, formatCount, formatDuration, formatRate } from "../../format.js";
import { html } from "../../html.js";
import { urlOf } from "../../location.js";
import { averageBatchSize, batchesPerSecond, batchSizes, highestOf } from "./recent.js";

const RECENT_S = 10;
const LATE_LOOP_MS = 200;
const SEVERITY = ["calm", "busy", "overloaded", "full"];

const COLUMNS = [
  { key: "worker", label: "Worker", title: "number of the process behind the port", render: renderName },
  { key: "load", label: "Load", title: "the worst state of pushes, pops and acks", render: renderLoad },
  { key: "lag", label: "Event loop lag", title: "highest lag in 10 s, and the last two minutes", render: renderLag },
  { key: "cpu", label: "CPU", title: "of one core", render: renderCpu },
  { key: "memory", label: "Memory", title: "resident memory", render: renderMemory },
  { key: "connections", label: "Connections", title: "busy connections to PostgreSQL, and requests that wait for one", render: renderConnections },
  { key: "batches", label: "Batch size", title: "requests per batch, on average over two minutes", render: renderBatches },
  { key: "pending", label: "Pending", align: "end", title: "requests that wait for their batch", render: (worker) => formatCount(worker.recent.pendingRequests.at(-1) ?? null) },
  { key: "parked", label: "Waiting pops", align: "end", render: (worker) => formatCount(worker.parkedPops) },
  { key: "started", label: "Started", render: (worker) => html`<${Time} value=${worker.startedAt} />` },
];

export const WorkerTable = ({ workers }) => html`
  <${DataTable} caption="Broker processes" columns=${COLUMNS} rows=${workers} rowKey=${processKey} />
`;

export const processKey = ({ hostname, worker }) => `${hostname}:${worker}`;

function renderName(worker) {
  const href = urlOf(location.pathname, { process: processKey(worker) });
  return html`<a href=${href} title="Show the history of this process">${worker.worker}</a> <small>pid ${worker.pid} on ${worker.hostname}</small>`;
}

function renderLoad({ load, databaseOutageSeconds }) {
  if (databaseOutageSeconds > 0) return html`<${LoadBadge} state="no database" />`;
  const states = Object.values(load.operations).map(({ state }) => state);
  return html`<${LoadBadge} state=${SEVERITY.findLast((state) => states.includes(state)) ?? "calm"} />`;
}

function renderLag({ recent }) {
  const highest = highestOf(recent.eventLoopLateMs, RECENT_S);
  return html`<${Trend} values=${recent.eventLoopLateMs} label="Event loop lag" text=${formatDuration(highest)} isBad=${highest > LATE_LOOP_MS} />`;
}

function renderCpu({ recent }) {
  const current = recent.cpuPercent.at(-1);
  return html`<${Trend} values=${recent.cpuPercent} label="CPU" text=${current === undefined ? "–" : `${Math.round(current)} %`} color="--enqueued" />`;
}

function renderMemory({ recent, residentBytes }) {
  return html`<${Trend} values=${recent.residentBytes} label="Memory" text=${formatBytes(residentBytes)} color="--avg" />`;
}

function renderConnections({ recent, load }) {
  const { busy, limit, waiters } = load.connections;
  const text = `${busy} of ${limit}${waiters ? `, ${formatCount(waiters)} wait` : ""}`;
  return html`<${Trend} values=${recent.busyConnections} label="Busy connections" text=${text} isBad=${waiters > 0} color="--dequeued" />`;
}

function renderBatches({ recent }) {
  const size = averageBatchSize(recent);
  const text = size === null ? html`<span class="muted">idle</span>` : html`${formatRate(size)} <small>${formatRate(batchesPerSecond(recent))}/s</small>`;
  return html`<${Trend} values=${batchSizes(recent)} label="Batch size" text=${text} color="--completed" />`;
}

/** A figure, and its course. */
const Trend = ({ values, label, text, color, isBad = false }) => html`
  <span class="trend ${isBad ? "bad" : ""}">
    <b>${text}</b>
    <${Sparkline} values=${values} label="${label} in the last two minutes" color=${color} />
  </span>
`;
