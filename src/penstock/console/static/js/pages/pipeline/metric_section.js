// One metric: the state of its query, its streams and its last batches.

import { Badge } from "../../components/badge.js";
import { Section } from "../../components/page.js";
import { Stat, Stats } from "../../components/stat.js";
import { Idle } from "../../components/states.js";
import { Time } from "../../components/time.js";
import { formatCount } from "../../format.js";
import { html } from "../../html.js";
import { BatchChart } from "./batch_chart.js";

const STATE_KINDS = { running: "ok", starting: "info", failed: "bad" };

export function MetricSection({ metric }) {
  const { metric: name, state, batches, streams, failures, restarts, lastFailure } = metric;
  const badge = html`<${Badge} kind=${STATE_KINDS[state] ?? "warn"}>${state ?? "no report"}<//>`;
  return html`
    <${Section} title="Metric ${name}" actions=${badge}>
      <div class="metric">
        <div class="metric-figures">
          <${Stats}>
            <${Stat} label="Not counted yet" value=${formatCount(metric.lag)} detail="entries" />
            <${Stat} label="Newest event" value=${html`<${Time} value=${metric.freshness} />`} />
            <${Stat} label="Failures" value=${formatCount(failures)} detail="${formatCount(restarts)} restarts" kind=${failures ? "warn" : ""} title="of the query since the pipeline started" />
          <//>
          <${StreamLags} streams=${streams} />
        </div>
        ${batches.length
          ? html`<${BatchChart} metric=${name} batches=${batches} />`
          : html`<${Idle}>No batch yet: a batch starts when events are in the streams.<//>`}
      </div>
      ${failures > 0 && lastFailure && html`<p class="problem">Last failure: ${lastFailure}</p>`}
    <//>
  `;
}

/** A bar per shard, so that one that is behind stands out. */
function StreamLags({ streams }) {
  const longest = Math.max(1, ...streams.map(({ lag }) => lag ?? 0));
  return html`
    <ul class="lags" aria-label="Entries that are not counted yet, by stream">
      ${streams.map(({ stream, shard, lag }) => html`
        <li key=${stream} title=${stream}>
          <span>shard ${shard}</span>
          <span class="lag-track" aria-hidden="true"><span style=${{ width: `${((lag ?? 0) / longest) * 100}%` }}></span></span>
          <b>${formatCount(lag)}</b>
        </li>
      `)}
    </ul>
  `;
}
