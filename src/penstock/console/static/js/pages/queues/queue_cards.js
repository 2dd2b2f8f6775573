// The queues of a page as cards with three charts each. Only cards near the screen have charts and fetch metrics.

import { fetchQueueMetrics } from "../../api/queues.js";
import { CHARTS } from "../../chart_specs.js";
import { Chart } from "../../components/chart.js";
import { formatCount } from "../../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../../html.js";
import { usePeriod } from "../../period.js";
import { toColumns } from "../../series.js";
import { useData } from "../../use_data.js";
import { CapBadge } from "./caps.js";
import { queueUrl } from "./queue_table.js";

const MARGIN = "150px"; // charts are ready before the user scrolls to them

export const QueueCards = ({ queues }) => html`
  <div class="cards">${queues.map((queue) => html`<${QueueCard} key=${`${queue.kind} ${queue.name}`} queue=${queue} />`)}</div>
`;

function QueueCard({ queue }) {
  const element = useRef(null);
  const isNear = useIsNear(element);
  const { name, kind, depth } = queue;
  return html`
    <article class="section card" ref=${element} data-queue=${name}>
      <header>
        <h2><a href=${queueUrl(name)} title=${name}>${name}</a></h2>
        <p class="muted">${kind} queue, ${formatCount(depth)} waiting</p>
        <${CapBadge} queue=${queue} />
      </header>
      ${isNear ? html`<${CardCharts} name=${name} />` : html`<div class="charts"></div>`}
    </article>
  `;
}

function CardCharts({ name }) {
  const { params, intervalMs, key } = usePeriod();
  const { data, problem } = useData((signal) => fetchQueueMetrics(name, params, signal), [name, key], { intervalMs });
  const series = useMemo(() => data && toColumns(data), [data]);
  if (problem && !series) return html`<p class="state unavailable" role="status">${problem.message}</p>`;
  return html`<div class="charts ${problem ? "outdated" : ""}">${CHARTS.map((spec) => html`<${Chart} key=${spec.title} spec=${spec} series=${series} />`)}</div>`;
}

/** Return whether an element is on the screen or near it. */
function useIsNear(element) {
  const [isNear, setNear] = useState(false);
  useEffect(() => {
    const observer = new IntersectionObserver(([entry]) => setNear(entry.isIntersecting), { rootMargin: MARGIN });
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return isNear;
}
