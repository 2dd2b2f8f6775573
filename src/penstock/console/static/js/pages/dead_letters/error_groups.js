// The errors of dead letters, the most frequent first. The URL holds the filters.

import { fetchErrorGroups } from "../../api/dead_letters.js";
import { DataTable } from "../../components/data_table.js";
import { Pager } from "../../components/pager.js";
import { SearchBox } from "../../components/search_box.js";
import { Sparkline } from "../../components/sparkline.js";
import { DataState, Empty } from "../../components/states.js";
import { Time } from "../../components/time.js";
import { formatCount } from "../../format.js";
import { html } from "../../html.js";
import { urlOf, useQueryParams } from "../../location.js";
import { useData } from "../../use_data.js";
import { StateBadge, STATES } from "./group_state.js";

const INTERVAL_MS = 5_000;
const PAGE_SIZE = 50;
const TREND_HOURS = 24;

export function ErrorGroups() {
  const [{ queue = "", state = "", page = "1" }, setParams] = useQueryParams();
  const states = state.split(",").filter(Boolean);
  const params = { queue, state: states, hours: TREND_HOURS, limit: PAGE_SIZE, offset: (Number(page) - 1) * PAGE_SIZE };
  const groups = useData((signal) => fetchErrorGroups(params, signal), [queue, state, page], { intervalMs: INTERVAL_MS });
  const setFilter = (changes) => setParams({ ...changes, page: "" });
  return html`
    <div class="toolbar">
      <${SearchBox} label="Queue" placeholder="Name of a queue" value=${queue} onSearch=${(text) => setFilter({ queue: text })} />
      <${StateFilter} states=${states} onChange=${(next) => setFilter({ state: next.join(",") })} />
    </div>
    <${DataState} state=${groups}>
      ${(data) => html`<${GroupTable} data=${data} queue=${queue} isFiltered=${Boolean(queue || state)} page=${Number(page)} onPage=${(next) => setParams({ page: String(next) })} />`}
    <//>
  `;
}

function StateFilter({ states, onChange }) {
  const toggle = (state) => onChange(states.includes(state) ? states.filter((each) => each !== state) : [...states, state]);
  return html`
    <div class="chips" role="group" aria-label="States">
      ${STATES.map(([state, text]) => html`
        <button key=${state} type="button" class="chip" aria-pressed=${states.includes(state)} onClick=${() => toggle(state)}>${text}</button>
      `)}
    </div>
  `;
}

function GroupTable({ data, queue, isFiltered, page, onPage }) {
  const { groups, complete, pagination } = data;
  if (groups.length === 0) return html`<${NoGroups} isFiltered=${isFiltered} />`;
  return html`
    <${DataTable} caption="Errors of dead letters" columns=${columnsFor(queue)} rows=${groups} rowKey=${(group) => group.errorGroup} />
    ${!complete && html`<p class="hint">These groups cover the first 10,000 dead tasks of the queue.</p>`}
    <${Pager} page=${page} pageSize=${PAGE_SIZE} total=${pagination.total} noun="errors" onPage=${onPage} />
  `;
}

const NoGroups = ({ isFiltered }) =>
  isFiltered
    ? html`<${Empty} title="No error matches"><p>Choose other states or another queue. Dead tasks of a run queue are listed with the name of the queue.</p><//>`
    : html`<${Empty} title="There are no dead letters"><p>Consumers have given up on no message. Dead tasks of a run queue are listed with the name of the queue.</p><//>`;

const columnsFor = (queue) => [
  { key: "state", label: "State", render: (group) => html`<${StateBadge} group=${group} />` },
  { key: "error", label: "Error", className: "wrap", render: (group) => html`<a href=${groupUrl(group, queue)}>${group.error}</a>` },
  { key: "deadLetters", label: "Dead letters", align: "end", render: (group) => formatCount(group.deadLetters) },
  { key: "trend", label: "Last 24 h", render: (group) => html`<${Sparkline} values=${group.trend} label="Dead letters by the hour of their death, last 24 hours" color="--dead" />` },
  { key: "queues", label: "Queues", render: (group) => group.queues.join(", ") },
  { key: "first", label: "First", render: (group) => html`<${Time} value=${group.firstFailedAt} />` },
  { key: "last", label: "Last", render: (group) => html`<${Time} value=${group.lastFailedAt} />` },
  { key: "owner", label: "Owner", render: (group) => group.owner ?? html`<span class="muted">–</span>` },
  { key: "note", label: "Note", className: "wrap", render: (group) => group.note ?? "" },
];

const groupUrl = (group, queue) => urlOf(`/console/dead-letters/${group.errorGroup}`, { queue });
