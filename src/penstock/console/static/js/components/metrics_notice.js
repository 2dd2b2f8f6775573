// The notice of pages whose figures are partly unknown: ClickHouse, PostgreSQL or Redis is away.

import { html } from "../html.js";

const UNKNOWN = {
  postgres: "The figures of durable queues are unknown.",
  redis: "The figures of run queues are unknown.",
};

/** `document` has `metricsAvailable`, `metricsProblem` and `problems`, as the documents of the console do. */
export function MetricsNotice({ document: { metricsAvailable, metricsProblem, problems } }) {
  if (metricsAvailable && problems.length === 0) return null;
  return html`
    <div class="state unavailable" role="status">
      ${problems.map(({ component, detail }) => html`<p key=${component}><strong>${UNKNOWN[component]}</strong> ${detail}</p>`)}
      ${!metricsAvailable &&
      html`<p><strong>Rates, waits and histories are unknown.</strong> Depths, ages and dead letters are live. ${metricsProblem}</p>`}
    </div>
  `;
}
