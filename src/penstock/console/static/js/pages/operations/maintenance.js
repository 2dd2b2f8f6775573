// The maintenance of PostgreSQL: what holds back vacuum, and the last comparison of totals with the log.

import { fetchReconciliation, fetchVacuumHorizon } from "../../api/operations.js";
import { Badge } from "../../components/badge.js";
import { DataTable } from "../../components/data_table.js";
import { Section } from "../../components/page.js";
import { Stat, Stats } from "../../components/stat.js";
import { DataState, Idle, NoData } from "../../components/states.js";
import { Time } from "../../components/time.js";
import { formatCount, formatDuration } from "../../format.js";
import { html } from "../../html.js";
import { useSession } from "../../session.js";
import { useData } from "../../use_data.js";

const INTERVAL_MS = 15_000;

const HOLDER_COLUMNS = [
  { key: "kind", label: "Held by", render: ({ kind }) => kind.replaceAll("_", " ") },
  { key: "name", label: "Name", render: ({ name, pid }) => name ?? (pid ? `pid ${pid}` : "–") },
  { key: "user", label: "User", render: ({ user }) => user ?? "–" },
  { key: "application", label: "Application", render: ({ application }) => application || "–" },
  { key: "ageSeconds", label: "For", align: "end", render: ({ ageSeconds }) => formatDuration(ageSeconds * 1_000) },
  { key: "transactionsAgo", label: "Transactions", align: "end", render: ({ transactionsAgo }) => formatCount(transactionsAgo) },
  { key: "advice", label: "What to do", className: "wrap" },
];

export function Maintenance() {
  const { can } = useSession();
  const reconciliation = useData(fetchReconciliation, [], { intervalMs: INTERVAL_MS });
  return html`
    ${can("admin") && html`<${VacuumHorizon} />`}
    <${Section} title="Reconciliation">
      <${DataState} state=${reconciliation}>${(report) => html`<${Reconciliation} report=${report} />`}<//>
    <//>
  `;
}

function VacuumHorizon() {
  const horizon = useData(fetchVacuumHorizon, [], { intervalMs: INTERVAL_MS });
  return html`
    <${Section} title="Vacuum horizon">
      <${DataState} state=${horizon}>
        ${({ holders, longerThan }) =>
          holders.length === 0
            ? html`<${Idle}>Nothing has held back vacuum for longer than ${formatDuration(longerThan * 1_000)}.<//>`
            : html`<${DataTable} caption="What holds back vacuum" columns=${HOLDER_COLUMNS} rows=${holders} rowKey=${(row) => `${row.kind} ${row.pid} ${row.name}`} />`}
      <//>
    <//>
  `;
}

function Reconciliation({ report }) {
  if (report.endedAt === null) return html`<${NoData}>Totals have not been compared with the log yet. The first comparison runs within ten minutes.<//>`;
  const { endedAt, queues, partitions, positions, drift, orphans, findings } = report;
  const isClean = drift === 0 && orphans === 0;
  return html`
    <${Stats}>
      <${Stat} label="Result" value=${html`<${Badge} kind=${isClean ? "ok" : "warn"}>${isClean ? "totals are right" : "corrected"}<//>`} />
      <${Stat} label="Last comparison" value=${html`<${Time} value=${endedAt} />`} />
      <${Stat} label="Compared" value=${formatCount(positions)} detail="positions in ${formatCount(partitions)} partitions of ${formatCount(queues)} queues" />
      <${Stat} label="Drift" value=${formatCount(drift)} kind=${drift ? "warn" : ""} title="messages by which totals were wrong" />
      <${Stat} label="Orphans" value=${formatCount(orphans)} kind=${orphans ? "warn" : ""} title="rows without an owner" />
    <//>
    ${findings.length > 0 && html`<pre class="findings" tabindex="0"><code>${JSON.stringify(findings, null, 2)}</code></pre>`}
  `;
}
