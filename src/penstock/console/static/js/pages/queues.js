// All queues of the environment, durable queues and run queues: a table, or cards with charts.

import { liveUrl } from "../api/console.js";
import { MetricsNotice } from "../components/metrics_notice.js";
import { Page } from "../components/page.js";
import { Pager } from "../components/pager.js";
import { PeriodPicker } from "../components/period_picker.js";
import { SearchBox } from "../components/search_box.js";
import { DataState, Empty } from "../components/states.js";
import { html } from "../html.js";
import { useLive } from "../live.js";
import { useQueryParams } from "../location.js";
import { FirstSteps } from "./overview/first_steps.js";
import { Filters, ViewSwitch } from "./queues/filters.js";
import { QueueCards } from "./queues/queue_cards.js";
import { QueueTable } from "./queues/queue_table.js";

const PAGE_SIZES = { table: 50, charts: 100 };

export default function QueuesPage() {
  const [query, setQuery] = useQueryParams();
  const view = query.view === "charts" ? "charts" : "table";
  const page = Math.max(1, Math.floor(Number(query.page)) || 1);
  const { search, kind, problem, sort, order } = query;
  const state = useLive(liveUrl("queues", { search, kind, problem, sort, order, page, pageSize: PAGE_SIZES[view] }));
  // A change of the selection leads to its first page.
  const select = (changes) => setQuery({ page: "", ...changes });
  return html`
    <${Page} title="Queues" className="queues" actions=${html`<${ViewSwitch} view=${view} />`}>
      <div class="tools">
        <${SearchBox} label="Search queues by name" placeholder="Search queues" value=${search ?? ""} onSearch=${(text) => select({ search: text })} />
        <${Filters} kind=${kind ?? ""} problem=${problem ?? ""} counts=${state.data?.counts ?? {}} onSelect=${select} />
        ${view === "charts" && html`<${PeriodPicker} />`}
      </div>
      <${DataState} state=${state}>
        ${(list) => html`<${QueueList} ...${{ list, query, view, select, setQuery }} />`}
      <//>
    <//>
  `;
}

function QueueList({ list, query, view, select, setQuery }) {
  const isFiltered = Boolean(query.search || query.kind || query.problem);
  if (list.total === 0) {
    return html`
      <${MetricsNotice} document=${list} />
      ${isFiltered ? html`<${NoMatch} search=${query.search} />` : list.problems.length === 0 && html`<${FirstSteps} />`}
    `;
  }
  const sort = { key: query.sort ?? "name", order: query.order ?? (SORTED_UP.has(query.sort ?? "name") ? "asc" : "desc") };
  return html`
    <div class="stacked">
      <${MetricsNotice} document=${list} />
      ${view === "charts"
        ? html`<${QueueCards} queues=${list.queues} />`
        : html`<${QueueTable} queues=${list.queues} sort=${sort} onSort=${(key, order) => select({ sort: key, order })} />`}
      <${Pager} page=${list.page} pageSize=${list.pageSize} total=${list.total} noun="queues" onPage=${(number) => setQuery({ page: number }, { push: true })} />
    </div>
  `;
}

const SORTED_UP = new Set(["name", "kind"]);

const NoMatch = ({ search }) => html`
  <${Empty} title=${search ? `No queue has “${search}” in its name and the selected kind and problem.` : "No queue has the selected kind and problem."}>
    <p><a href="/console/queues">Show all queues</a></p>
  <//>
`;
