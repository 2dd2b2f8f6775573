// The last batches of a metric as bars of their parts. Each bar is one batch; the pointer shows its figures.

import { formatCount, formatDateTime, formatDuration } from "../../format.js";
import { html, useMemo, useState } from "../../html.js";
import { timeZone } from "../../preferences.js";
import { averageParts, chartTop, durationPercentile, toBars } from "./batch_parts.js";

const HEIGHT = 100;
const BAR_WIDTH = 8;
const SLOTS = 120;

export function BatchChart({ metric, batches }) {
  timeZone.use();
  const [selected, setSelected] = useState(null);
  const bars = useMemo(() => toBars(batches), [batches]);
  const batch = selected === null ? null : batches[selected];
  const label = `Durations of the last ${batches.length} batches of ${metric}: half take less than ${formatDuration(durationPercentile(batches, 0.5))}, the longest ${formatDuration(durationPercentile(batches, 1))}.`;
  const select = (event) => {
    const { left, width } = event.currentTarget.getBoundingClientRect();
    const slot = Math.floor(((event.clientX - left) / width) * SLOTS) - (SLOTS - bars.length);
    setSelected(slot >= 0 && slot < bars.length ? slot : null);
  };
  return html`
    <figure class="batches">
      <figcaption>
        <span class="title">Batch durations</span>
        <span class="batch-figures">${batch ? describeBatch(batch) : describeAll(batches)}</span>
      </figcaption>
      <div class="batch-plot">
        <span class="batch-top" aria-hidden="true">${formatDuration(chartTop(batches))}</span>
        <svg viewBox="0 0 ${SLOTS * BAR_WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label=${label} onPointerMove=${select} onPointerLeave=${() => setSelected(null)}>
          ${bars.map(({ batch: { batchId }, parts, isCut }, i) => html`<${Bar} key=${batchId} x=${(SLOTS - bars.length + i) * BAR_WIDTH} parts=${parts} isCut=${isCut} isSelected=${i === selected} />`)}
        </svg>
      </div>
      <${Parts} parts=${batch ? averageParts([batch]) : averageParts(batches)} isAverage=${!batch} />
    </figure>
  `;
}

const Bar = ({ x, parts, isCut, isSelected }) => html`
  <g class=${isSelected ? "selected" : ""}>
    ${parts.map(({ key, color, y, height }) => html`
      <rect key=${key} x=${x + 1} width=${BAR_WIDTH - 2} y=${y * HEIGHT} height=${height * HEIGHT} style=${{ fill: `var(${color})` }} />
    `)}
    ${isCut && html`<rect class="cut" x=${x + 1} width=${BAR_WIDTH - 2} y="0" height="4" />`}
  </g>
`;

const Parts = ({ parts, isAverage }) => html`
  <ul class="batch-parts" aria-label=${isAverage ? "Average parts of a batch" : "Parts of the batch"}>
    ${parts.map(({ key, label, color, meaning, ms }) => html`
      <li key=${key} title=${meaning}><i style=${{ background: `var(${color})` }}></i>${label} <b>${formatDuration(ms)}</b></li>
    `)}
  </ul>
`;

const describeAll = (batches) =>
  `p50 ${formatDuration(durationPercentile(batches, 0.5))} · p95 ${formatDuration(durationPercentile(batches, 0.95))} · last ${formatDuration(batches.at(-1).durationMs)}`;

const describeBatch = ({ batchId, startedAt, durationMs, entries, rows }) =>
  `batch ${formatCount(batchId)}, ${formatDateTime(Date.parse(startedAt))}: ${formatDuration(durationMs)}, ${formatCount(entries)} entries, ${formatCount(rows)} rows`;

