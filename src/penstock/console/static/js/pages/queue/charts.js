// The charts of a queue: one cursor over all of them, dragging zooms, and events are marked.

import { CHARTS, failureChart, OLDEST_CHART, RUNNING_CHART } from "../../chart_specs.js";
import { Chart } from "../../components/chart.js";
import { Section } from "../../components/page.js";
import { Unavailable } from "../../components/states.js";
import { formatDateTime } from "../../format.js";
import { html, useMemo } from "../../html.js";
import { urlOf, useLocation } from "../../location.js";
import { timeZone } from "../../preferences.js";

const [DEPTH_CHART, RATE_CHART, WAIT_CHART] = CHARTS;
const TIERS = { "5s": "5-second tier", "1m": "1-minute tier", "1h": "1-hour tier" };
const ZOOM_OUT_FACTOR = 2;

export function QueueCharts({ series, problem, annotations, period, actions }) {
  const { pathname, searchParams } = useLocation();
  const selected = searchParams.get("series") ?? "";
  const query = Object.fromEntries(searchParams);
  const specs = useMemo(() => {
    const failures = failureChart(selected, (key) => urlOf(pathname, { ...query, series: key }));
    return [DEPTH_CHART, WAIT_CHART, RUNNING_CHART, OLDEST_CHART, RATE_CHART, failures];
  }, [selected, pathname, searchParams.toString()]);
  const zoomOut = () => series && period.zoom(...widen(series));
  return html`
    <${Section} className="queue-charts" title="Charts" actions=${html`<${Tier} series=${series} /><${ZoomButtons} ...${{ series, period, zoomOut }} />${actions}`}>
      ${problem && html`<${Unavailable} problem=${problem} />`}
      <div class="charts ${problem && series ? "outdated" : ""}">
        ${specs.map((spec) => html`
          <${Chart} key=${spec.title} spec=${spec} series=${series} annotations=${annotations} onZoom=${period.zoom} onZoomOut=${zoomOut} />
        `)}
      </div>
    <//>
  `;
}

/** Return a span of twice the length around the shown one, in milliseconds, that does not reach into the future. */
export function widen({ start, end }, now = Date.now()) {
  const half = ((end - start) * ZOOM_OUT_FACTOR) / 2;
  const middle = (start + end) / 2;
  return [(middle - half) * 1_000, Math.min((middle + half) * 1_000, now)];
}

/** The tier that the points come from, how wide they are, and until when events are counted. */
function Tier({ series }) {
  timeZone.use();
  if (!series) return null;
  const { tier, resolution, knownUntil, isBehind, isCarried } = series;
  const width = resolution === tier ? "" : `, ${resolution} points`;
  const hasCarried = isCarried.some(Boolean);
  return html`
    <span class="tier" title="Counted until ${formatDateTime(knownUntil * 1_000)}">
      ${TIERS[tier] ?? tier}${width}${isBehind ? ", metrics are behind" : ""}
    </span>
    ${hasCarried && html`<span class="carried-key"><i></i>carried forward</span>`}
  `;
}

function ZoomButtons({ series, period, zoomOut }) {
  if (!series) return null;
  const length = (series.end - series.start) * 1_000;
  const shift = (share) => period.zoom(series.start * 1_000 + share * length, series.end * 1_000 + share * length);
  const isLive = period.period !== null;
  return html`
    <span class="zoom-buttons">
      <button type="button" class="small" aria-label="Earlier" title="Earlier" onClick=${() => shift(-0.5)}>◀</button>
      <button type="button" class="small" title="Zoom out (double click in a chart)" onClick=${zoomOut}>Zoom out</button>
      <button type="button" class="small" aria-label="Later" title="Later" disabled=${isLive} onClick=${() => shift(0.5)}>▶</button>
    </span>
  `;
}
