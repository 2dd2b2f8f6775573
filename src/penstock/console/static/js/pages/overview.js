// The overview: what is wrong, where and since when; then the figures of the whole environment.

import { liveUrl } from "../api/console.js";
import { Page } from "../components/page.js";
import { DataState } from "../components/states.js";
import { html } from "../html.js";
import { useLive } from "../live.js";
import { Attention } from "./overview/attention.js";
import { FirstSteps } from "./overview/first_steps.js";
import { Figures } from "./overview/figures.js";
import { MetricsNotice } from "../components/metrics_notice.js";

export default function OverviewPage() {
  const state = useLive(liveUrl("overview"));
  return html`
    <${Page} title="Overview" className="overview">
      <${DataState} state=${state}>${(overview) => html`<${Content} overview=${overview} />`}<//>
    <//>
  `;
}

function Content({ overview }) {
  const isNew = overview.totals.queues === 0 && overview.problems.length === 0;
  return html`
    <div class="stacked">
      <${Attention} overview=${overview} />
      <${MetricsNotice} document=${overview} />
      ${isNew ? html`<${FirstSteps} />` : html`<${Figures} overview=${overview} />`}
    </div>
  `;
}
