// The list of incidents: those that are not resolved first.

import { fetchIncidents } from "../../api/alerts.js";
import { DataTable } from "../../components/data_table.js";
import { FilterSelect } from "../../components/filter_select.js";
import { Section } from "../../components/page.js";
import { SearchBox } from "../../components/search_box.js";
import { DataState, Empty } from "../../components/states.js";
import { pageWindow, StepPager } from "../../components/step_pager.js";
import { Time, useNow } from "../../components/time.js";
import { formatDuration } from "../../format.js";
import { html } from "../../html.js";
import { urlOf, useQueryParams } from "../../location.js";
import { useData } from "../../use_data.js";
import { describeQueues, SEVERITIES, SeverityBadge, StateBadge } from "./wording.js";

const PAGE_SIZE = 50;
const REFRESH_MS = 10_000;
const STATES = [
  ["unresolved", "not resolved"],
  ["open", "open"],
  ["acknowledged", "acknowledged"],
  ["resolved", "resolved"],
  ["all", "all"],
];

export function IncidentsTab() {
  const [{ state = "unresolved", severity = "", queue = "", page: pageText = "1" }, setParams] = useQueryParams();
  const { page, offset, limit } = pageWindow(pageText, PAGE_SIZE);
  const params = { state: state === "all" ? "" : state, severity, queue, offset, limit };
  const incidents = useData((signal) => fetchIncidents(params, signal), [state, severity, queue, page], { intervalMs: REFRESH_MS });
  const filter = (changes) => setParams({ ...changes, page: "" });
  return html`
    <div class="tools">
      <${SearchBox} label="Queue" placeholder="Name of a queue" value=${queue} onSearch=${(text) => filter({ queue: text })} />
      <${FilterSelect} label="State" value=${state} options=${STATES} onValue=${(value) => filter({ state: value === "unresolved" ? "" : value })} />
      <${FilterSelect} label="Severity" value=${severity} options=${[["", "any severity"], ...SEVERITIES.map((name) => [name, name])]} onValue=${(value) => filter({ severity: value })} />
    </div>
    <${DataState} state=${incidents}>
      ${({ incidents: rows }) => html`
        <${Section}>
          ${rows.length === 0 ? html`<${NoIncidents} state=${state} />` : html`<${IncidentTable} rows=${rows.slice(0, PAGE_SIZE)} />`}
        <//>
        <${StepPager} page=${page} hasNext=${rows.length > PAGE_SIZE} onPage=${(number) => setParams({ page: number > 1 ? number : "" })} />
      `}
    <//>
  `;
}

const NoIncidents = ({ state }) => html`
  <${Empty} title=${state === "unresolved" ? "Nothing fires." : "No incident matches."}>
    <p>${state === "unresolved" ? html`<a href=${urlOf("/console/alerts", { state: "all" })}>Show all incidents</a>` : "Change the filter above."}</p>
  <//>
`;

export function IncidentTable({ rows }) {
  const now = useNow(REFRESH_MS);
  const columns = [
    { key: "state", label: "State", render: ({ state }) => html`<${StateBadge} state=${state} />` },
    { key: "severity", label: "Severity", render: ({ severity }) => html`<${SeverityBadge} severity=${severity} />` },
    { key: "rule", label: "Rule", render: ({ id, rule }) => html`<a href=${urlOf("/console/alerts", { incident: id })}>${rule}</a>` },
    { key: "queues", label: "Queues", render: queuesText },
    { key: "openedAt", label: "Opened", render: ({ openedAt }) => html`<${Time} value=${openedAt} />` },
    { key: "duration", label: "Lasts", align: "end", render: (row) => formatDuration(duration(row, now)) },
    { key: "cause", label: "What", className: "wrap", render: ({ cause, queues }) => whatText(cause, queues) },
    { key: "acknowledgedBy", label: "Acknowledged by", render: ({ acknowledgedBy }) => acknowledgedBy ?? "" },
  ];
  return html`<${DataTable} caption="Incidents" columns=${columns} rows=${rows} rowKey=${({ id }) => id} />`;
}

export const duration = ({ openedAt, resolvedAt }, now) => (resolvedAt ? Date.parse(resolvedAt) : now) - Date.parse(openedAt);

function queuesText({ queues, queueCount }) {
  const first = queues.map(({ queue }) => (queue ? queue : "the environment")).join(", ");
  const more = queueCount - queues.length;
  return more > 0 ? `${first} and ${more} more` : first || describeQueues("");
}

/** Return the sentence that tells most: the cause, or what was measured. */
function whatText(cause, queues) {
  return cause && cause.kind !== "unknown" ? cause.summary : (queues[0]?.summary ?? "");
}
