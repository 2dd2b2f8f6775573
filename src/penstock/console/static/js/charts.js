// A chart of a card. Colours come from the style sheet, which handles light and dark mode.

import uPlot from "../vendor/uplot-1.6.32/uPlot.esm.js";
import { formatTime, formatTimeTick } from "./format.js";
import { createMarks } from "./chart_marks.js";
import { toDrawing } from "./series.js";

const HEIGHT_PX = 140;
const PIXELS_PER_BUCKET = 1.5;
const HATCH_SPACING_PX = 7;
const CURSOR_SYNC_KEY = "penstock";
const MIN_DRAG_PX = 8;
const ZOOM_EVENTS = new Set(["mousedown", "mouseup", "dblclick"]);
const TIME_STEPS_S = [
  5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800,
  ...[1, 2, 3, 4, 6, 8, 12].map((h) => h * 3_600),
  ...[1, 2, 5, 10, 30, 60, 90].map((d) => d * 86_400),
];
/**
 * A chart inside the element `host`. Call `draw` with each new series, and `destroy` once. `onZoom(fromMs, toMs)` gets the
 * span that the user selects by dragging, `onZoomOut()` a double click.
 */
export class Chart {
  #spec;
  #plot;
  #series = null;
  #drawing = null;
  #values = [];
  #marks = null;
  #annotations = [];
  #zoom;
  #resizeObserver;

  constructor(host, spec, { onZoom = null, onZoomOut = null } = {}) {
    this.#spec = spec;
    this.#zoom = { onZoom, onZoomOut };
    const figure = element("figure", "chart");
    const head = element("figcaption");
    const title = element("span", "title", spec.title);
    title.title = spec.tooltip;
    const legend = element("span", "legend");
    for (const { label, color, hideIfEmpty, href, isSelected } of spec.legend) {
      const item = element(href ? "a" : "span", "item");
      if (href) item.href = href;
      if (isSelected) item.setAttribute("aria-current", "true");
      item.hidden = Boolean(hideIfEmpty);
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

    this.#plot = this.#createPlot(canvas);
    this.#resizeObserver = new ResizeObserver(() => this.#fit(canvas));
    this.#resizeObserver.observe(canvas);
  }

  /** `annotations` are events to mark, as the API returns them. */
  draw(series, annotations = this.#annotations) {
    this.#series = series;
    this.#annotations = annotations;
    // uPlot sets the size of its elements a moment after it is created.
    const width = this.#plot.over.clientWidth || this.#plot.width;
    const drawing = series.isPlain ? series : toDrawing(series, width / PIXELS_PER_BUCKET);
    this.#drawing = drawing;
    this.#marks.select(annotations, drawing);
    this.#plot.setData([drawing.x, ...this.#spec.lines.map((line) => drawing[line.key])], false);
    this.#plot.setScale("x", { min: drawing.start, max: drawing.end });
    this.#plot.root.parentElement.classList.add("drawn");
    this.#showValues();
  }

  /** Move the cursor of all charts by whole buckets. */
  moveCursor(buckets) {
    if (!this.#drawing) return;
    const last = this.#drawing.x.length - 1;
    const from = this.#plot.cursor.idx ?? last;
    const to = Math.min(last, Math.max(0, from + buckets));
    this.#plot.setCursor({ left: this.#plot.valToPos(this.#drawing.x[to], "x"), top: HEIGHT_PX / 2 }, true, true);
  }

  hideCursor() {
    this.#plot.setCursor({ left: -10, top: -10 }, true, true);
  }

  destroy() {
    this.#resizeObserver.disconnect();
    this.#plot.destroy();
  }

  #createPlot(host) {
    const style = getComputedStyle(host);
    const color = (name) => style.getPropertyValue(name).trim();
    const font = `11px ${style.fontFamily}`;
    const cursorTime = element("span", "cursor-time");
    const { onZoom, onZoomOut } = this.#zoom;
    this.#marks = createMarks(color);
    const axis = { stroke: color("--muted"), font, ticks: { show: false } };
    const { minTop, axis: yAxis, lines } = this.#spec;

    return new uPlot(
      {
        width: Math.max(120, host.clientWidth),
        height: HEIGHT_PX,
        padding: [6, 16, 0, 0],
        legend: { show: false },
        cursor: {
          y: false,
          drag: { x: Boolean(onZoom), y: false, setScale: false, dist: MIN_DRAG_PX },
          points: { size: 6, width: 1.5 },
          // Only the position of the cursor is shared: a drag zooms once, not once for each chart.
          sync: { key: CURSOR_SYNC_KEY, scales: ["x", null], filters: { pub: (type) => !ZOOM_EVENTS.has(type), sub: () => true } },
          bind: { dblclick: () => () => onZoomOut?.() },
        },
        scales: {
          x: { time: true },
          y: { range: (_plot, _low, high) => [0, Math.max(minTop, (high ?? 0) * 1.06)] },
        },
        axes: [
          {
            ...axis,
            size: 22,
            gap: 4,
            space: 60,
            incrs: TIME_STEPS_S,
            grid: { show: false },
            // The corner stays empty for the zero of the other axis.
            values: (plot, splits, _axis, _space, increment) =>
              splits.map((s) => (plot.valToPos(s, "x") < 16 ? "" : formatTimeTick(s, increment))),
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
            points: { show: false, filter: isolatedIndexes, size: 3.5 },
          })),
        ],
        hooks: {
          drawClear: [(plot) => this.#drawing && hatchUnknown(plot, this.#drawing, color("--muted"))],
          draw: [(plot) => this.#marks.draw(plot)],
          ready: [(plot) => plot.over.append(cursorTime, this.#marks.layer)],
          setSelect: [
            (plot) => {
              const { left, width } = plot.select;
              if (width < MIN_DRAG_PX) return;
              plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
              onZoom(plot.posToVal(left, "x") * 1_000, plot.posToVal(left + width, "x") * 1_000);
            },
          ],
          setCursor: [
            (plot) => {
              const index = plot.cursor.idx;
              const isShown = index !== null && index !== undefined && plot.cursor.left >= 0 && this.#drawing !== null;
              cursorTime.hidden = !isShown;
              if (isShown) {
                cursorTime.textContent = formatTime(this.#drawing.x[index], this.#drawing.step);
                const half = cursorTime.offsetWidth / 2;
                const left = Math.min(plot.over.clientWidth - half, Math.max(half, plot.cursor.left));
                cursorTime.style.transform = `translateX(${left - half}px)`;
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

  /** Show the values at the cursor in the legend, or else the current ones. */
  #showValues() {
    if (!this.#drawing) return;
    const index = this.#plot.cursor.left >= 0 ? this.#plot.cursor.idx : null;
    this.#spec.legend.forEach(({ key, hideIfEmpty }, i) => {
      const column = this.#drawing[key];
      if (hideIfEmpty) this.#values[i].parentElement.hidden = column.every((v) => v === null);
      const current = this.#drawing.isBehind ? null : column.findLast((v) => v !== null);
      const value = index === null || index === undefined ? current : column[index];
      this.#values[i].textContent = this.#spec.format(value);
    });
  }

  #fit(host) {
    const width = Math.floor(host.clientWidth);
    if (width <= 0 || width === this.#plot.width) return;
    this.#plot.setSize({ width, height: HEIGHT_PX });
    if (this.#series) this.draw(this.#series);
  }
}

/** Return the indexes of values without known neighbours. They have no line, so each is drawn as a dot. */
function isolatedIndexes(plot, seriesIndex) {
  const values = plot.data[seriesIndex];
  const indexes = [];
  const [from, to] = plot.series[0].idxs;
  for (let i = from; i <= to; i++) {
    if (values[i] != null && values[i - 1] == null && values[i + 1] == null) indexes.push(i);
  }
  return indexes.length ? indexes : null;
}

/** Hatch the buckets whose events are not counted: a missing line there does not mean that nothing happened. */
function hatchUnknown(plot, { x, step, isUnknown }, color) {
  const { ctx, bbox } = plot;
  const spacing = HATCH_SPACING_PX * devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  isUnknown.forEach((unknown, i) => {
    if (!unknown) return;
    const left = Math.max(bbox.left, plot.valToPos(x[i], "x", true));
    const right = Math.min(bbox.left + bbox.width, plot.valToPos(x[i] + step, "x", true));
    if (right > left) ctx.rect(left, bbox.top, right - left, bbox.height);
  });
  ctx.clip();
  ctx.beginPath();
  for (let left = bbox.left - bbox.height; left < bbox.left + bbox.width; left += spacing) {
    ctx.moveTo(left, bbox.top + bbox.height);
    ctx.lineTo(left + bbox.height, bbox.top);
  }
  ctx.strokeStyle = translucent(color, 0.35);
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([]); // the last line of the previous drawing may have been dashed
  ctx.stroke();
  ctx.restore();
}

/** Add an alpha channel to a colour of the form #rrggbb. */
function translucent(color, alpha) {
  return color + Math.round(alpha * 255).toString(16).padStart(2, "0");
}

function element(tag, className = "", text = "") {
  const created = document.createElement(tag);
  if (className) created.className = className;
  if (text) created.textContent = text;
  return created;
}
