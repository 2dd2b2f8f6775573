// The three charts of a card. Colours come from the style sheet, so light and dark need no code here.

import uPlot from "../vendor/uplot-1.6.32/uPlot.esm.js";
import { axisMoment, count, duration, durationTick, moment, rate, rateTick } from "./format.js";
import { drawable } from "./series.js";

const HEIGHT = 140;
const PIXELS_PER_BUCKET = 1.5;
const CURSORS = "penstock";
const DURATION_STEPS_MS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500,
  ...[1, 2, 5, 10, 20, 30].map((s) => s * 1_000),
  ...[1, 2, 5, 10, 20, 30].map((m) => m * 60_000),
  ...[1, 2, 4, 6, 12].map((h) => h * 3_600_000),
  ...[1, 2, 5, 10, 20, 50, 100].map((d) => d * 86_400_000),
];
const TIME_STEPS_S = [
  5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800,
  ...[1, 2, 3, 4, 6, 8, 12].map((h) => h * 3_600),
  ...[1, 2, 5, 10].map((d) => d * 86_400),
];
const WHOLE_STEPS = [1, 2, 5].flatMap((n) => Array.from({ length: 10 }, (_, e) => n * 10 ** e)).sort((a, b) => a - b);

// `top` is the smallest top of the scale: a quiet queue shows as a flat line near zero, not as noise.
export const CHARTS = [
  {
    title: "Depth",
    about: "messages or tasks waiting, and tasks delayed",
    format: count,
    axis: { values: count, incrs: WHOLE_STEPS },
    top: 4,
    lines: [
      { key: "carried", color: "--depth", dash: [3, 3], alpha: 0.55, fill: 0.05 },
      { key: "depth", color: "--depth", fill: 0.16, width: 1.6 },
      { key: "delayed", color: "--delayed", width: 1.4 },
    ],
    legend: [
      { label: "max", key: "waiting", color: "--depth" },
      { label: "delayed", key: "delayed", color: "--delayed", ifAny: true },
    ],
  },
  {
    title: "Throughput",
    about: "messages per second",
    format: rate,
    axis: { values: rateTick },
    top: 1,
    lines: [
      { key: "enqueued", color: "--enqueued", fill: 0.12, width: 1.4 },
      { key: "dequeued", color: "--dequeued", width: 1.4 },
      { key: "completed", color: "--completed", width: 1.4 },
    ],
    legend: [
      { label: "in", key: "enqueued", color: "--enqueued" },
      { label: "taken", key: "dequeued", color: "--dequeued" },
      { label: "done", key: "completed", color: "--completed" },
    ],
  },
  {
    title: "Wait",
    about: "from push to pop",
    format: duration,
    axis: { values: durationTick, incrs: DURATION_STEPS_MS },
    top: 10,
    lines: [
      { key: "p95Wait", color: "--p95", fill: 0.1, width: 1.4 },
      { key: "avgWait", color: "--avg", width: 1.4 },
    ],
    legend: [
      { label: "avg", key: "avgWait", color: "--avg" },
      { label: "p95", key: "p95Wait", color: "--p95" },
    ],
  },
];

/** One chart inside `host`. Call `draw` with a series as often as wanted, and `destroy` once. */
export class Chart {
  #spec;
  #plot;
  #series = null;
  #data = null;
  #values = [];
  #resize;

  constructor(host, spec) {
    this.#spec = spec;
    const figure = element("figure", "chart");
    const head = element("figcaption");
    const title = element("span", "title", spec.title);
    title.title = spec.about;
    const legend = element("span", "legend");
    for (const { label, color, ifAny } of spec.legend) {
      const item = element("span", "item");
      item.hidden = Boolean(ifAny);
      item.style.setProperty("--color", `var(${color})`);
      const value = element("b", "", "–");
      item.append(element("i"), `${label} `, value);
      legend.append(item);
      this.#values.push(value);
    }
    head.append(title, legend);
    const canvas = element("div", "plot");
    figure.append(head, canvas);
    host.append(figure);

    this.#plot = this.#makePlot(canvas);
    this.#resize = new ResizeObserver(() => this.#fit(canvas));
    this.#resize.observe(canvas);
  }

  draw(series) {
    this.#series = series;
    const data = drawable(series, this.#plot.over.clientWidth / PIXELS_PER_BUCKET);
    this.#data = data;
    this.#plot.setData([data.x, ...this.#spec.lines.map((line) => data[line.key])], false);
    this.#plot.setScale("x", { min: data.start, max: data.end });
    this.#plot.root.parentElement.classList.add("drawn");
    this.#showValues();
  }

  /** Move the shared cursor by whole buckets, for the keyboard. */
  step(buckets) {
    if (!this.#data) return;
    const last = this.#data.x.length - 1;
    const from = this.#plot.cursor.idx ?? last;
    const to = Math.min(last, Math.max(0, from + buckets));
    this.#plot.setCursor({ left: this.#plot.valToPos(this.#data.x[to], "x"), top: HEIGHT / 2 }, true, true);
  }

  leave() {
    this.#plot.setCursor({ left: -10, top: -10 }, true, true);
  }

  destroy() {
    this.#resize.disconnect();
    this.#plot.destroy();
  }

  #makePlot(host) {
    const style = getComputedStyle(host);
    const color = (name) => style.getPropertyValue(name).trim();
    const font = `11px ${style.fontFamily}`;
    const flag = element("span", "flag");
    const axis = { stroke: color("--muted"), font, ticks: { show: false } };
    const { top, axis: yAxis, lines } = this.#spec;

    return new uPlot(
      {
        width: Math.max(120, host.clientWidth),
        height: HEIGHT,
        padding: [6, 16, 0, 0],
        legend: { show: false },
        cursor: {
          y: false,
          drag: { x: false, y: false, setScale: false },
          points: { size: 6, width: 1.5 },
          sync: { key: CURSORS, scales: ["x", null] },
        },
        scales: {
          x: { time: true },
          y: { range: (_plot, _low, high) => [0, Math.max(top, (high ?? 0) * 1.06)] },
        },
        axes: [
          {
            ...axis,
            size: 22,
            gap: 4,
            space: 60,
            incrs: TIME_STEPS_S,
            grid: { show: false },
            // Not in the corner, where the other axis has its zero.
            values: (plot, splits, _axis, _space, increment) =>
              splits.map((s) => (plot.valToPos(s, "x") < 16 ? "" : axisMoment(s, increment))),
          },
          {
            ...axis,
            size: 48,
            gap: 4,
            space: 26,
            grid: { stroke: color("--grid"), width: 1 },
            incrs: yAxis.incrs,
            values: (_plot, splits) => splits.map((v) => yAxis.values(v)),
          },
        ],
        series: [
          {},
          ...lines.map((line) => ({
            stroke: color(line.color),
            fill: line.fill ? translucent(color(line.color), line.fill) : undefined,
            width: line.width ?? 1.2,
            dash: line.dash,
            alpha: line.alpha ?? 1,
            points: { show: false, filter: isolated, size: 3.5 },
          })),
        ],
        hooks: {
          ready: [(plot) => plot.over.append(flag)],
          setCursor: [
            (plot) => {
              const at = plot.cursor.idx;
              const shown = at !== null && at !== undefined && plot.cursor.left >= 0 && this.#data !== null;
              flag.hidden = !shown;
              if (shown) {
                flag.textContent = moment(this.#data.x[at], this.#data.step);
                const half = flag.offsetWidth / 2;
                const left = Math.min(plot.over.clientWidth - half, Math.max(half, plot.cursor.left));
                flag.style.transform = `translateX(${left - half}px)`;
              }
              this.#showValues();
            },
          ],
        },
      },
      [[], ...lines.map(() => [])],
      host,
    );
  }

  /** The legend tells the values under the cursor, or else the last known ones. */
  #showValues() {
    if (!this.#data) return;
    const at = this.#plot.cursor.left >= 0 ? this.#plot.cursor.idx : null;
    this.#spec.legend.forEach(({ key, ifAny }, i) => {
      const column = this.#data[key];
      if (ifAny) this.#values[i].parentElement.hidden = column.every((v) => v === null);
      const value = at === null || at === undefined ? column.findLast((v) => v !== null) : column[at];
      this.#values[i].textContent = this.#spec.format(value);
    });
  }

  #fit(host) {
    const width = Math.floor(host.clientWidth);
    if (width <= 0 || width === this.#plot.width) return;
    this.#plot.setSize({ width, height: HEIGHT });
    if (this.#series) this.draw(this.#series);
  }
}

/** A value with nothing known on either side has no line to belong to: it gets a dot. */
function isolated(plot, seriesIndex) {
  const values = plot.data[seriesIndex];
  const alone = [];
  const [from, to] = plot.series[0].idxs;
  for (let i = from; i <= to; i++) {
    if (values[i] != null && values[i - 1] == null && values[i + 1] == null) alone.push(i);
  }
  return alone.length ? alone : null;
}

/** The style sheet gives colours as #rrggbb; two more digits make one see-through on every canvas. */
function translucent(color, alpha) {
  return color + Math.round(alpha * 255).toString(16).padStart(2, "0");
}

function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}
