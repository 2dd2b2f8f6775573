// The metrics pipeline: lag of its streams, batches, freshness, losses, and what Spark executes.

import { fetchPipeline } from "../api/pipeline.js";
import { AdministratorsOnly } from "../components/administrators_only.js";
import { Page } from "../components/page.js";
import { DataState } from "../components/states.js";
import { html } from "../html.js";
import { useSession } from "../session.js";
import { useData } from "../use_data.js";
import { Losses } from "./pipeline/losses.js";
import { MetricSection } from "./pipeline/metric_section.js";
import { Spark } from "./pipeline/spark.js";
import { Summary } from "./pipeline/summary.js";

const INTERVAL_MS = 2_000;

export default function PipelinePage() {
  const { platformAdministrator } = useSession();
  return html`
    <${Page} title="Pipeline" subtitle="From metric events in Redis to charts in ClickHouse" className="pipeline">
      ${platformAdministrator ? html`<${Pipeline} />` : html`<${AdministratorsOnly} subject="the pipeline" />`}
    <//>
  `;
}

function Pipeline() {
  const state = useData(fetchPipeline, [], { intervalMs: INTERVAL_MS });
  return html`
    <${DataState} state=${state}>
      ${(pipeline) => html`
        <div class="page">
          <${Summary} pipeline=${pipeline} />
          ${pipeline.metrics.map((metric) => html`<${MetricSection} key=${metric.metric} metric=${metric} triggerMs=${pipeline.triggerMs} />`)}
          <${Spark} spark=${pipeline.spark} isRunning=${pipeline.isRunning} />
        </div>
      `}
    <//>
    <${Losses} />
  `;
}
