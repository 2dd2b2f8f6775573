// Lanes: deferred operations of one partition, which are executed in order.

import { fetchLanes } from "../../api/operations.js";
import { Badge } from "../../components/badge.js";
import { DataTable } from "../../components/data_table.js";
import { Section } from "../../components/page.js";
import { DataState, Idle } from "../../components/states.js";
import { Time } from "../../components/time.js";
import { formatCount } from "../../format.js";
import { html } from "../../html.js";
import { useSession } from "../../session.js";
import { useData } from "../../use_data.js";
import { OperationActions } from "./operation_actions.js";

const INTERVAL_MS = 2_000;

const COLUMNS = [
  { key: "queue", label: "Queue", render: ({ queue }) => html`<a href="/console/queues/${encodeURIComponent(queue)}">${queue}</a>` },
  { key: "partition", label: "Partition" },
  { key: "type", label: "Type" },
  { key: "state", label: "State", render: renderState },
  { key: "operations", label: "Operations", align: "end", render: ({ operations }) => formatCount(operations) },
  { key: "oldest", label: "Oldest", render: ({ first }) => html`<${Time} value=${first?.createdAt} />` },
  { key: "attempts", label: "Attempts", align: "end", render: ({ first }) => formatCount(first?.attempts ?? null) },
  { key: "error", label: "Error of the first", className: "wrap", render: ({ first }) => first?.error ?? html`<span class="muted">–</span>` },
];

export function Lanes() {
  const { can } = useSession();
  const state = useData(fetchLanes, [], { intervalMs: INTERVAL_MS });
  const actions = { key: "actions", label: "Actions", isLabelHidden: true, render: (lane) => html`<${LaneActions} lane=${lane} onChange=${state.refresh} />` };
  const columns = can("operate") ? [...COLUMNS, actions] : COLUMNS;
  return html`
    <${Section} title="Lanes">
      <${DataState} state=${state}>
        ${({ lanes, total }) =>
          total === 0
            ? html`<${Idle}>No operation waits: pushes and acks are executed at once.<//>`
            : html`
                <${DataTable} caption="Lanes with waiting operations" columns=${columns} rows=${lanes} rowKey=${(lane) => `${lane.partitionId} ${lane.type}`} />
                ${total > lanes.length && html`<p class="hint">The most urgent ${formatCount(lanes.length)} of ${formatCount(total)} lanes.</p>`}
              `}
      <//>
    <//>
  `;
}

function renderState({ blocked, first, retryAt }) {
  if (blocked) return html`<${Badge} kind="bad" title="Its first operation failed. Retry or delete it.">blocked<//>`;
  if (first?.attempts) return html`<${Badge} kind="warn">retrying<//> <small><${Time} value=${retryAt} /></small>`;
  return html`<${Badge} kind="info">waiting<//>`;
}

const LaneActions = ({ lane, onChange }) =>
  lane.blocked && lane.first && html`<${OperationActions} operation=${{ ...lane, ...lane.first, status: "failed" }} onChange=${onChange} />`;
