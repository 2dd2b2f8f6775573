// The charts of the message's queue over the time of its life, with its events marked.

import { fetchQueueMetrics } from "../../api/queues.js";
import { CHARTS } from "../../chart_specs.js";
import { Chart } from "../../components/chart.js";
import { Section } from "../../components/page.js";
import { DataState } from "../../components/states.js";
import { html, useMemo } from "../../html.js";
import { urlOf } from "../../location.js";
import { readSpan } from "../../period.js";
import { toColumns } from "../../series.js";
import { useData } from "../../use_data.js";
import { describeEvent } from "./time_line.js";

const MARGIN_MS = 5 * 60_000;
const MARGIN_SHARE = 0.1;

/** The time from before the first event to after the last one, but not into the future. */
export function lifeSpan(events, now = Date.now()) {
  const times = events.map(({ at }) => Date.parse(at));
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const margin = Math.max(MARGIN_MS, (last - first) * MARGIN_SHARE);
  return { from: new Date(first - margin).toISOString(), to: new Date(Math.min(last + margin, now)).toISOString() };
}

export function LifeChart({ message: { queue, events } }) {
  const eventsKey = JSON.stringify(events.map(({ event, at }) => [event, at]));
  const span = useMemo(() => lifeSpan(events), [eventsKey]);
  const marks = useMemo(() => events.map((event) => ({ id: `${event.event} ${event.at}`, at: event.at, kind: event.event, text: describeEvent(event) })), [eventsKey]);
  const metrics = useData((signal) => fetchQueueMetrics(queue, readSpan(span).params, signal), [queue, span.from, span.to]);
  const series = useMemo(() => metrics.data && toColumns(metrics.data), [metrics.data]);
  const link = html`<a href=${urlOf(`/console/queues/${encodeURIComponent(queue)}`, span)}>Open the queue at this time</a>`;
  return html`
    <${Section} title="Its queue at that time" actions=${link}>
      <${DataState} state=${metrics}>
        ${() => html`<div class="charts">${CHARTS.map((spec) => html`<${Chart} key=${spec.title} spec=${spec} series=${series} annotations=${marks} />`)}</div>`}
      <//>
    <//>
  `;
}
