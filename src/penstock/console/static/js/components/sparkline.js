// A small line without axes. Unknown values (null) are gaps.

import { html } from "../html.js";

const WIDTH = 100;
const HEIGHT = 24;

/** `label` says what the line shows, for screen readers. */
export function Sparkline({ values, label, color = "--depth" }) {
  const known = values.filter((value) => value !== null);
  if (known.length === 0) return html`<span class="sparkline no-data" title="No data">–</span>`;
  const lines = toPolylines(values, Math.max(1, ...known));
  return html`
    <svg class="sparkline" viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label=${label} style=${{ "--color": `var(${color})` }}>
      ${lines.map((points) => html`<polyline points=${points} vector-effect="non-scaling-stroke" />`)}
    </svg>
  `;
}

/** Return the points of each run of known values. A single value becomes a short horizontal line. */
export function toPolylines(values, top) {
  const step = WIDTH / Math.max(1, values.length - 1);
  const y = (value) => (HEIGHT - 1 - (value / top) * (HEIGHT - 2)).toFixed(1);
  const runs = [];
  values.forEach((value, i) => {
    if (value === null) return;
    if (i === 0 || values[i - 1] === null) runs.push([]);
    runs.at(-1).push([i * step, y(value)]);
  });
  return runs.map((run) => {
    const points = run.length > 1 ? run : [[run[0][0] - step / 3, run[0][1]], [run[0][0] + step / 3, run[0][1]]];
    return points.map(([x, height]) => `${x.toFixed(1)},${height}`).join(" ");
  });
}
