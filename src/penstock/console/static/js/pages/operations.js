// Overload and maintenance: what happens to requests now, what waits, and what keeps PostgreSQL from cleaning up.

import { fetchOperationStats } from "../api/operations.js";
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
  const state = useData(fetchOperationStats, [], { intervalMs: INTERVAL_MS });
  return html`
    <${Page} title="Operations" subtitle="Load, deferred operations and maintenance" className="operations">
      <${DataState} state=${state}>
        ${(stats) => html`
          <div class="page">
            <${Load} stats=${stats} />
            <${Journal} journal=${stats.journal} outageSeconds=${stats.databaseOutageSeconds} />
          </div>
        `}
      <//>
      <${Lanes} />
      <${OperationList} stats=${state.data?.stats ?? []} onChange=${state.refresh} />
      ${platformAdministrator && html`<${Maintenance} />`}
    <//>
  `;
}
