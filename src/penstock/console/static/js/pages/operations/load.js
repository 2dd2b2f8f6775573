// What happens to a new push, ack or pop, and why: of every process for platform administrators, else of one.

import { DataTable } from "../../components/data_table.js";
import { LoadBadge } from "../../components/load_badge.js";
import { Section } from "../../components/page.js";
import { formatCount, formatDuration, formatRate } from "../../format.js";
import { html } from "../../html.js";
import { DECISIONS, describeReason, toLoadRows } from "./load_rows.js";

const COLUMNS = [
  { key: "kind", label: "Request" },
  { key: "worker", label: "Worker", align: "end" },
  { key: "decision", label: "Now", title: "what happens to a request that comes now", render: renderDecision },
  { key: "state", label: "State", render: ({ state }) => html`<${LoadBadge} state=${state} />` },
  { key: "load", label: "Load", title: "1 is the most that is acceptable; the mark is the threshold", render: renderLoad },
  { key: "waitMs", label: "Wait", align: "end", title: "of a new request for its batch", render: ({ waitMs }) => formatDuration(waitMs) },
  { key: "batchMs", label: "Batch", align: "end", title: "how long a batch takes", render: ({ batchMs }) => formatDuration(batchMs) },
  { key: "waiting", label: "In lanes", align: "end", render: ({ waiting, depthLimit }) => (depthLimit ? `${formatCount(waiting)} of ${formatCount(depthLimit)}` : "–") },
  { key: "drained", label: "Drained /s", align: "end", render: ({ drainedPerSecond, depthLimit }) => (depthLimit ? formatRate(drainedPerSecond) : "–") },
  { key: "executed", label: "Executed", align: "end", render: ({ decisions }) => formatCount(decisions.execute) },
  { key: "deferred", label: "Deferred", align: "end", render: ({ decisions }) => formatCount(decisions.spill) },
  { key: "refused", label: "Refused", align: "end", render: ({ decisions }) => html`<span class=${decisions.refuse ? "bad-figure" : ""}>${formatCount(decisions.refuse)}</span>` },
];

export function Load({ workers, hasJournal }) {
  const { enabled, waitLimitMs, spikeSeconds, eventLoopLimitMs } = workers[0].load;
  const columns = workers.length > 1 ? COLUMNS : COLUMNS.filter(({ key }) => key !== "worker");
  const lag = Math.max(...workers.map(({ load }) => load.eventLoopLateMs));
  return html`
    <${Section} title="Load decision" actions=${!enabled && html`<span class="badge">switched off</span>`}>
      <${DataTable} caption="Load and decision by kind of request" columns=${columns} rows=${toLoadRows(workers, hasJournal)} rowKey=${(row) => `${row.kind} ${row.worker}`} />
      <p class="hint">
        A load of 1 is a wait, or a batch, of ${formatDuration(waitLimitMs)}. Deferring ends ${formatDuration(spikeSeconds * 1_000)} after
        an overload began. An event loop that lags by more than ${formatDuration(eventLoopLimitMs)} refuses requests; it lags by ${formatDuration(lag)} now.
      </p>
    <//>
  `;
}

function renderDecision({ decision, reason, depthLimit }) {
  return html`
    <b class=${decision === "execute" ? "" : "bad-figure"}>${DECISIONS[decision]}</b> <small>${describeReason(reason, decision, depthLimit)}</small>
  `;
}

function renderLoad({ load, threshold }) {
  const share = (value) => `${Math.min(100, value * 100)}%`;
  return html`
    <span class="load-bar ${load > threshold ? "over" : ""}">
      <span class="load-track" aria-hidden="true">
        <span class="load-value" style=${{ width: share(load) }}></span>
        <span class="load-threshold" style=${{ left: share(threshold) }}></span>
      </span>
      <b>${load.toFixed(2)}</b> <small>of ${threshold}</small>
    </span>
  `;
}
