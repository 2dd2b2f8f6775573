// The broker processes: event loop, connections, batches and memory, now and over time.

import { fetchWorkers } from "../api/workers.js";
import { AdministratorsOnly } from "../components/administrators_only.js";
import { DataTable } from "../components/data_table.js";
import { Page, Section } from "../components/page.js";
import { DataState, Idle } from "../components/states.js";
import { formatCount, formatDuration, formatRate } from "../format.js";
import { html } from "../html.js";
import { useSession } from "../session.js";
import { useData } from "../use_data.js";
import { WorkerHistory } from "./workers/history.js";
import { combineBatching } from "./workers/recent.js";
import { WorkerTable } from "./workers/worker_table.js";

const INTERVAL_MS = 2_000;

export default function WorkersPage() {
  const { platformAdministrator } = useSession();
  return html`
    <${Page} title="Workers" subtitle="Processes of this broker" className="workers">
      ${platformAdministrator ? html`<${Workers} />` : html`<${AdministratorsOnly} subject="broker processes" />`}
    <//>
  `;
}

function Workers() {
  const state = useData(fetchWorkers, [], { intervalMs: INTERVAL_MS });
  return html`
    <${DataState} state=${state}>
      ${({ workers }) => html`
        <div class="page">
          <${Section} title="Now"><${WorkerTable} workers=${workers} /><//>
          <${Section} title="Batches since the start"><${Batching} workers=${workers} /><//>
        </div>
      `}
    <//>
    <${WorkerHistory} />
  `;
}

const BATCH_COLUMNS = [
  { key: "operation", label: "Operation" },
  { key: "requests", label: "Requests", align: "end", render: (row) => formatCount(row.requests) },
  { key: "batches", label: "Batches", align: "end", render: (row) => formatCount(row.batches) },
  { key: "size", label: "Requests per batch", align: "end", render: (row) => formatRate(row.requests / row.batches) },
  { key: "items", label: "Items per batch", align: "end", render: (row) => formatRate(row.items / row.batches) },
  { key: "duration", label: "Duration", align: "end", title: "of a batch, on average", render: (row) => formatDuration(row.busyMs / row.batches) },
  { key: "pending", label: "Pending", align: "end", render: (row) => formatCount(row.pending) },
  { key: "inFlight", label: "In flight", align: "end", render: (row) => formatCount(row.inFlight) },
  { key: "failures", label: "Failed", align: "end", render: (row) => html`<span class=${row.failures ? "bad-figure" : ""}>${formatCount(row.failures)}</span>` },
];

function Batching({ workers }) {
  const rows = combineBatching(workers).filter(({ batches, failures, pending }) => batches || failures || pending);
  if (rows.length === 0) return html`<${Idle}>Idle: no request has come since the start.<//>`;
  return html`<${DataTable} caption="Batches by operation" columns=${BATCH_COLUMNS} rows=${rows} rowKey=${(row) => row.operation} />`;
}
