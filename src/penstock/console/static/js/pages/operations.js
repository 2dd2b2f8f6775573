// Overload and maintenance: what happens to requests now, what waits, and what keeps PostgreSQL from cleaning up.

import { fetchOperationStats } from "../api/operations.js";
import { fetchWorkers } from "../api/workers.js";
import { Page } from "../components/page.js";
import { DataState } from "../components/states.js";
import { html } from "../html.js";
import { useSession } from "../session.js";
import { useData } from "../use_data.js";
import { Journal } from "./operations/journal.js";
import { Lanes } from "./operations/lanes.js";
import { Load } from "./operations/load.js";
import { Maintenance } from "./operations/maintenance.js";
import { OperationList } from "./operations/operation_list.js";

const INTERVAL_MS = 2_000;

export default function OperationsPage() {
  const { platformAdministrator } = useSession();
  // The processes answer without PostgreSQL, the statistics of operations do not.
  const load = useData(platformAdministrator ? fetchWorkers : fetchLoadOfOneProcess, [], { intervalMs: INTERVAL_MS });
  return html`
    <${Page} title="Operations" subtitle="Load, deferred operations and maintenance" className="operations">
      <${DataState} state=${load}>
        ${({ workers, journal }) => html`
          <div class="page">
            <${Load} workers=${workers} hasJournal=${journal !== null} />
            <${Journal} journal=${journal} outageSeconds=${Math.max(...workers.map((worker) => worker.databaseOutageSeconds))} />
          </div>
        `}
      <//>
      <${Lanes} />
      <${OperationList} />
      ${platformAdministrator && html`<${Maintenance} />`}
    <//>
  `;
}

async function fetchLoadOfOneProcess(signal) {
  const { load, journal, databaseOutageSeconds } = await fetchOperationStats(signal);
  return { workers: [{ load, databaseOutageSeconds }], journal };
}
