// What a rule measured in the past: the worst value of all queues, the threshold, and the spans in which it fired.

import uPlot from "../../../vendor/uplot-1.6.32/uPlot.esm.js";
import { formatTime, formatTimeTick } from "../../format.js";
import { html, useEffect, useRef, useState } from "../../html.js";
import { timeZone, useTheme } from "../../preferences.js";
import { formatValue } from "./wording.js";

const HEIGHT_PX = 200;
const FIRING_ALPHA = 0.16;
const UNKNOWN_ALPHA = 0.12;

/** `test` is the response of a test of a rule. `marks`: `{ atMs, color }`, drawn as vertical lines. */
export function RuleChart({ test, marks = [] }) {
  const theme = useTheme();
  const zone = timeZone.use();
  const host = useRef(null);
  const [shown, setShown] = useState(null);
  useEffect(() => {
    const element = host.current;
    const plot = createPlot(element, test, marks, setShown);
    const observer = new ResizeObserver(() => fit(plot, element));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
  }, [test, theme, zone]);
  return html`
    <figure class="rule-chart">
      <figcaption>
        <span class="legend"><i class="value"></i>worst value of ${test.queues === 1 ? "1 queue" : `${test.queues} queues`}</span>
        ${test.unit !== "flag" && html`<span class="legend"><i class="threshold"></i>threshold ${test.thresholdText}</span>`}
        <span class="legend"><i class="firing"></i>would have fired</span>
        ${test.unknown.length > 0 && html`<span class="legend"><i class="unknown"></i>unknown</span>`}
        <output>${shown ? `${formatTime(shown.x, 60)}: ${formatValue(shown.y, test.unit)}` : ""}</output>
      </figcaption>
      <div ref=${host} class="plot drawn" role="img" aria-label="Values of the rule: ${test.sentence}"></div>
    </figure>
  `;
}

function fit(plot, host) {
  const width = widthOf(host);
  if (width !== plot.width) plot.setSize({ width, height: HEIGHT_PX });
}

const widthOf = (host) => Math.max(120, Math.floor(host.clientWidth));

/** Return the columns of the chart: times in seconds, values, and the two thresholds. */
export function chartColumns({ series, threshold, clearThreshold, unit }) {
  const start = Date.parse(series.from) / 1_000;
  const x = series.values.map((_, i) => start + i * series.stepSeconds);
  const level = (value) => x.map(() => (unit === "flag" ? null : value));
  return [x, series.values, level(threshold), level(clearThreshold === threshold ? null : clearThreshold)];
}

function createPlot(host, test, marks, setShown) {
  const style = getComputedStyle(host);
  const color = (name) => style.getPropertyValue(name).trim();
  const axis = { stroke: color("--muted"), font: `11px ${style.fontFamily}`, ticks: { show: false } };
  const span = [Date.parse(test.from) / 1_000, Date.parse(test.to) / 1_000];
  const thresholdTop = test.unit === "flag" ? 1 : test.threshold * 1.15;
  return new uPlot(
    {
      width: widthOf(host),
      height: HEIGHT_PX,
      padding: [6, 16, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false, setScale: false } },
      scales: {
        x: { time: true, range: () => span },
        y: { range: (_plot, _low, high) => [0, Math.max(1e-9, thresholdTop, (high ?? 0) * 1.06)] },
      },
      axes: [
        { ...axis, size: 22, gap: 4, grid: { show: false }, values: (_plot, splits, _axis, _space, step) => splits.map((s) => formatTimeTick(s, step)) },
        { ...axis, size: 58, gap: 4, space: 30, grid: { stroke: color("--grid"), width: 1 }, values: (_plot, splits) => splits.map((v) => formatValue(v, test.unit)) },
      ],
      series: [
        {},
        { stroke: color("--depth"), fill: withAlpha(color("--depth"), 0.1), width: 1.6 },
        { stroke: color("--bad"), width: 1.4, dash: [6, 4], points: { show: false } },
        { stroke: color("--ok"), width: 1.2, dash: [2, 4], points: { show: false } },
      ],
      hooks: {
        drawClear: [
          (plot) => {
            for (const { from, to } of test.unknown) fillSpan(plot, span, from, to, withAlpha(color("--muted"), UNKNOWN_ALPHA));
            for (const { openedAt, resolvedAt } of test.incidents) fillSpan(plot, span, openedAt, resolvedAt ?? test.to, withAlpha(color("--bad"), FIRING_ALPHA));
          },
        ],
        draw: [(plot) => marks.forEach((mark) => drawMark(plot, span, mark, color(mark.color)))],
        setCursor: [({ cursor: { idx, left }, data }) => setShown(idx == null || left < 0 ? null : { x: data[0][idx], y: data[1][idx] })],
      },
    },
    chartColumns(test),
    host,
  );
}

/** Fill a span of time over the whole height, at least two pixels wide. */
function fillSpan(plot, [start, end], from, to, color) {
  const { ctx, bbox } = plot;
  const position = (time) => plot.valToPos(Math.min(end, Math.max(start, Date.parse(time) / 1_000)), "x", true);
  const [left, right] = [position(from), position(to)];
  ctx.save();
  ctx.fillStyle = color;
  ctx.fillRect(left, bbox.top, Math.max(2, right - left), bbox.height);
  ctx.restore();
}

function drawMark(plot, [start, end], { atMs }, color) {
  const time = atMs / 1_000;
  if (time < start || time > end) return;
  const { ctx, bbox } = plot;
  const x = plot.valToPos(time, "x", true);
  ctx.save();
  ctx.strokeStyle = color;
  ctx.lineWidth = 2 * devicePixelRatio;
  ctx.setLineDash([]);
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.restore();
}

/** Return a colour of the form #rrggbb with an alpha channel. */
const withAlpha = (color, alpha) => color + Math.round(alpha * 255).toString(16).padStart(2, "0");
