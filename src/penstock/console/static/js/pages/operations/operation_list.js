// The deferred operations of the environment: waiting, failed, or completed within the last hour.

import { fetchOperations, fetchOperationStats } from "../../api/operations.js";
import { Badge } from "../../components/badge.js";
import { DataTable } from "../../components/data_table.js";
import { SelectField } from "../../components/form.js";
import { Section } from "../../components/page.js";
import { DataState, Empty } from "../../components/states.js";
import { Time } from "../../components/time.js";
import { formatCount } from "../../format.js";
import { html } from "../../html.js";
import { setQueryParams, useQueryParams } from "../../location.js";
import { useSession } from "../../session.js";
import { useData } from "../../use_data.js";
import { OperationActions } from "./operation_actions.js";

const INTERVAL_MS = 5_000;
const PAGE_SIZE = 50;
const STATUS_KINDS = { pending: "info", failed: "bad", completed: "ok" };
const REASONS = { system_busy: "busy", maintaining_order: "behind others", database_down: "no database" };

const COLUMNS = [
  { key: "operationId", label: "Operation", render: ({ operationId }) => html`<code title=${operationId}>…${operationId.slice(-12)}</code>` },
  { key: "status", label: "Status", render: ({ status }) => html`<${Badge} kind=${STATUS_KINDS[status]}>${status}<//>` },
  { key: "type", label: "Type" },
  { key: "queue", label: "Queue", render: ({ queue }) => html`<a href="/console/queues/${encodeURIComponent(queue)}">${queue}</a>` },
  { key: "partition", label: "Partition" },
  { key: "items", label: "Items", align: "end", render: ({ items }) => formatCount(items) },
  { key: "reason", label: "Deferred because", render: ({ reason }) => REASONS[reason] ?? reason },
  { key: "createdAt", label: "Accepted", render: ({ createdAt }) => html`<${Time} value=${createdAt} />` },
  { key: "finishedAt", label: "Executed", render: ({ finishedAt }) => html`<${Time} value=${finishedAt} />` },
  { key: "attempts", label: "Attempts", align: "end", render: ({ attempts }) => formatCount(attempts) },
  { key: "error", label: "Error", className: "wrap", render: ({ error }) => error ?? html`<span class="muted">–</span>` },
];

export function OperationList() {
  const { can } = useSession();
  const [{ status = "", queue = "", after = "" }] = useQueryParams();
  const params = { status, queue, after, limit: PAGE_SIZE };
  const state = useData((signal) => fetchOperations(params, signal), [status, queue, after], { intervalMs: INTERVAL_MS });
  const stats = useData(fetchOperationStats, [], { intervalMs: INTERVAL_MS });
  const refresh = () => {
    state.refresh();
    stats.refresh();
  };
  const actions = { key: "actions", label: "Actions", isLabelHidden: true, render: (operation) => html`<${OperationActions} operation=${operation} onChange=${refresh} />` };
  const columns = can("operate") ? [...COLUMNS, actions] : COLUMNS;
  return html`
    <${Section} title="Deferred operations" actions=${html`<${StatusFilter} status=${status} queue=${queue} stats=${stats.data?.stats ?? []} />`}>
      <${DataState} state=${state}>
        ${({ operations, next }) => html`
          ${operations.length === 0
            ? html`<${NoOperations} isFiltered=${Boolean(status || queue || after)} />`
            : html`<${DataTable} caption="Deferred operations" columns=${columns} rows=${operations} rowKey=${(row) => row.operationId} />`}
          <nav class="pager" aria-label="Pages of operations">
            ${after && html`<button type="button" onClick=${() => setQueryParams({ after: "" })}>First page</button>`}
            ${next && html`<button type="button" onClick=${() => setQueryParams({ after: next }, { push: true })}>Next page</button>`}
          </nav>
        `}
      <//>
    <//>
  `;
}

function StatusFilter({ status, queue, stats }) {
  const count = (wanted) => stats.filter((row) => row.status === wanted).reduce((total, row) => total + row.count, 0);
  const options = [
    ["", "All"],
    ["pending", `Waiting (${formatCount(count("pending"))})`],
    ["failed", `Failed (${formatCount(count("failed"))})`],
    ["completed", "Completed"],
  ];
  return html`
    ${queue && html`<button type="button" class="small" onClick=${() => setQueryParams({ queue: "", after: "" })}>Queue ${queue} ✕</button>`}
    <div class="inline-field"><${SelectField} label="Status" value=${status} options=${options} onValue=${(value) => setQueryParams({ status: value, after: "" })} /></div>
  `;
}

const NoOperations = ({ isFiltered }) =>
  isFiltered
    ? html`<${Empty} title="No operation matches."><p><a href="/console/operations">Show all</a></p><//>`
    : html`<${Empty} title="Nothing was deferred.">
        <p>An overloaded broker accepts a push or ack with 202 and executes it a little later. Such operations are listed here for an hour.</p>
      <//>`;
