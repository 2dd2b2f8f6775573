// The measurements of broker processes over time: all together, or one of them.

import { fetchSystemMetrics, fetchWorkerMetrics } from "../../api/workers.js";
import { Chart } from "../../components/chart.js";
import { PeriodPicker } from "../../components/period_picker.js";
import { Section } from "../../components/page.js";
import { DataState, NoData } from "../../components/states.js";
import { formatBytes, formatDuration, formatDurationTick, formatRate, formatRateTick } from "../../format.js";
import { html } from "../../html.js";
import { urlOf, useQueryParam } from "../../location.js";
import { usePeriod } from "../../period.js";
import { toPlainSeries } from "../../plain_series.js";
import { useData } from "../../use_data.js";

const INTERVAL_MS = 10_000;
const UNIT_S = { m: 60, h: 3_600, d: 86_400 };

const line = (key, color, rest = {}) => ({ key, color, width: 1.4, ...rest });
const item = (key, label, color) => ({ key, label, color });
const percent = (n) => (n === null || n === undefined ? "–" : `${+n.toFixed(n < 10 ? 1 : 0)} %`);

const CHARTS = [
  {
    title: "Event loop lag",
    tooltip: "how late the event loop runs: a lagging process answers late",
    format: formatDuration,
    axis: { values: formatDurationTick },
    minTop: 10,
    lines: [line("lagMax", "--p95", { fill: 0.1 }), line("lagAvg", "--avg")],
    legend: [item("lagAvg", "avg", "--avg"), item("lagMax", "max", "--p95")],
  },
  {
    title: "Connections",
    tooltip: "busy connections to PostgreSQL per process, and requests that waited for one",
    format: formatRate,
    axis: { values: formatRateTick },
    minTop: 2,
    lines: [line("busyMax", "--dequeued", { fill: 0.1 }), line("busyAvg", "--depth"), line("waitersMax", "--dead")],
    legend: [item("busyAvg", "busy", "--depth"), item("busyMax", "max", "--dequeued"), item("waitersMax", "waiting", "--dead")],
  },
  {
    title: "Requests",
    tooltip: "requests per second of all processes",
    format: formatRate,
    axis: { values: formatRateTick },
    minTop: 1,
    lines: [line("push", "--enqueued", { fill: 0.1 }), line("pop", "--dequeued"), line("ack", "--completed")],
    legend: [item("push", "push", "--enqueued"), item("pop", "pop", "--dequeued"), item("ack", "ack", "--completed")],
  },
  {
    title: "Pending",
    tooltip: "requests that wait for their batch, and pops that wait for a message, per process",
    format: formatRate,
    axis: { values: formatRateTick },
    minTop: 2,
    lines: [line("pendingMax", "--p95", { fill: 0.1 }), line("parkedAvg", "--info")],
    legend: [item("pendingMax", "pending max", "--p95"), item("parkedAvg", "waiting pops", "--info")],
  },
  {
    title: "CPU",
    tooltip: "of one core, per process",
    format: percent,
    axis: { values: percent },
    minTop: 10,
    lines: [line("cpu", "--enqueued", { fill: 0.12 })],
    legend: [item("cpu", "avg", "--enqueued")],
  },
  {
    title: "Memory",
    tooltip: "resident memory per process",
    format: formatBytes,
    axis: { values: formatBytes },
    minTop: 50_000_000,
    lines: [line("memoryMax", "--p95", { fill: 0.08 }), line("memoryAvg", "--avg")],
    legend: [item("memoryAvg", "avg", "--avg"), item("memoryMax", "max", "--p95")],
  },
];

const perSecond = (key) => (point) => (point.coveredSeconds && point[key] !== null ? point[key] / point.coveredSeconds : null);
const COLUMNS = {
  lagAvg: (point) => point.eventLoopLate?.avgMs,
  lagMax: (point) => point.eventLoopLate?.maxMs,
  busyAvg: (point) => point.connections?.busyAvg,
  busyMax: (point) => point.connections?.busyMax,
  waitersMax: (point) => point.connections?.waitersMax,
  push: perSecond("pushRequests"),
  pop: perSecond("popRequests"),
  ack: perSecond("ackRequests"),
  pendingMax: (point) => point.pending?.max,
  parkedAvg: (point) => point.parkedPops?.avg,
  cpu: (point) => point.cpuPercent,
  memoryAvg: (point) => point.residentBytes?.avg,
  memoryMax: (point) => point.residentBytes?.max,
};

export function WorkerHistory() {
  const span = usePeriod();
  const [process, setProcess] = useQueryParam("process");
  const intervalMs = span.period ? INTERVAL_MS : 0;
  const state = useData((signal) => fetchHistory(span, process, signal), [span.key, process], { intervalMs });
  const { hostname, worker } = processParams(process);
  const title = process ? `History of worker ${worker} on ${hostname}` : "History of all processes";
  const actions = html`
    ${process && html`<button type="button" class="small" onClick=${() => setProcess("")}>Show all processes</button>`}
    <${PeriodPicker} />
  `;
  return html`
    <${Section} title=${title} actions=${actions}>
      <${DataState} state=${state}>
        ${(series) => (series.isEmpty ? html`<${NothingMeasured} />` : html`<${Charts} series=${series} span=${span} />`)}
      <//>
    <//>
  `;
}

const Charts = ({ series, span }) => html`
  <div class="charts">
    ${CHARTS.map((spec) => html`<${Chart} key=${spec.title} spec=${spec} series=${series} onZoom=${span.zoom} onZoomOut=${() => span.selectPeriod("30m")} />`)}
  </div>
`;

const NothingMeasured = () => html`
  <${NoData}>No process measured itself in this time. <a href=${urlOf("/console/workers", { period: "24h" })}>Show 24 hours</a><//>
`;

async function fetchHistory(span, process, signal) {
  const to = span.to ?? Date.now();
  const from = span.from ?? to - periodSeconds(span.period) * 1_000;
  const params = { from: new Date(from).toISOString(), to: new Date(to).toISOString(), ...processParams(process) };
  const [workers, system] = await Promise.all([fetchWorkerMetrics(params, signal), fetchSystemMetrics(params, signal)]);
  const points = workers.series.map((point, i) => ({ ...system.series[i], ...point }));
  return toPlainSeries({ ...workers, series: points }, COLUMNS);
}

function processParams(process) {
  if (!process) return {};
  const separator = process.lastIndexOf(":");
  return { hostname: process.slice(0, separator), worker: process.slice(separator + 1) };
}

const periodSeconds = (period) => Number.parseInt(period, 10) * UNIT_S[period.at(-1)];
