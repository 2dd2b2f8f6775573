// The card of one queue: its name, numbers and charts. In the view of one queue, it also has the chart of failures.

import { fetchQueueMetrics } from "./api.js";
import { CHARTS, failureChart } from "./chart_specs.js";
import { Chart } from "./charts.js";
import { DepthHistory } from "./depth_history.js";
import { formatCount, formatDuration, formatRate, formatTotal } from "./format.js";
import { currentNumbers, maxDepth, toColumns } from "./series.js";
import { DEAD_LETTERS_ANCHOR, FAILURES, PERIODS, viewUrl } from "./view.js";

// A coarse series changes slowly, so it is refreshed less often.
const REFRESH_INTERVAL_MS = { "5s": 1_900, "1m": 10_000, "1h": 60_000, "12h": 600_000 };
// If the chart is coarser than this, the numbers come from a second, short period.
const FINE_RESOLUTION = "5s";
const NUMBERS_PERIOD = "5m";

// Key, label and tooltip of each number.
const NUMBERS = [
  ["depth", "Depth", "messages or tasks waiting now"],
  ["in", "In /s", "pushed or enqueued per second, mean of the last 30 s"],
  ["out", "Out /s", "completed per second, mean of the last 30 s"],
  ["wait", "Wait p95", "highest 5-second p95 of the last minute, from ready for delivery to delivered"],
  ["oldest", "Oldest", "age of the oldest message or task that is ready for delivery"],
  ["retried", "Retried", "failed attempts in this period that are retried"],
  ["dead", "Dead", "messages or tasks that became dead letters in this period"],
  ["expired", "Expired", "messages or tasks that expired in this period before a consumer finished them"],
];

export class Card {
  visible = false;
  problem = null;
  recentSeries = null;
  #depth = null;
  #depthHistory = new DepthHistory();
  #values = {};
  #charts = [];
  #chartContainer;
  #series = null;
  #period = null;
  #view;
  #fetchedAt = { series: -Infinity, recent: -Infinity };

  constructor(queue, view) {
    this.name = queue.name;
    this.#view = view;
    const fragment = document.getElementById("card").content.cloneNode(true);
    this.element = fragment.querySelector("article");
    this.element.dataset.queue = queue.name;
    this.element.classList.toggle("detailed", Boolean(view.queue));
    const heading = this.element.querySelector("h2 a");
    heading.textContent = queue.name;
    heading.title = queue.name;
    this.#chartContainer = this.element.querySelector(".charts");
    this.#chartContainer.setAttribute("aria-label", `Charts of ${queue.name}. Arrow keys move the cursor.`);
    this.#chartContainer.addEventListener("keydown", (event) => this.#onKey(event));
    this.#chartContainer.addEventListener("blur", () => this.#charts[0]?.hideCursor());
    const list = this.element.querySelector("dl");
    for (const [key, label, tooltip] of NUMBERS) {
      const row = document.createElement("div");
      row.className = key;
      row.title = tooltip;
      const term = document.createElement("dt");
      term.textContent = label;
      const definition = document.createElement("dd");
      const value = FAILURES.includes(key) ? definition.appendChild(document.createElement("a")) : definition;
      value.textContent = "–";
      row.append(term, definition);
      list.append(row);
      this.#values[key] = value;
    }
    this.#updateLinks();
    this.update(queue);
  }

  /** Show what the list of queues contains, which is known even while metrics are unavailable. */
  update(queue) {
    const { depth } = queue;
    const description = queue.isRunQueue ? describeRunQueue(queue) : describeDurableQueue(queue);
    this.element.querySelector(".about").textContent = description;
    this.#depth = depth;
    this.#depthHistory.add(depth, performance.now());
    this.#setValue("depth", formatCount(depth));
    this.#values.depth.dataset.change = formatChange(this.#depthHistory.change());
  }

  show() {
    this.visible = true;
    if (this.#charts.length) return;
    const { queue, series } = this.#view;
    const specs = queue ? [...CHARTS, failureChart(series, (key) => this.#urlOfSeries(key))] : CHARTS;
    this.#charts = specs.map((spec) => new Chart(this.#chartContainer, spec));
    if (this.#series) this.#draw();
  }

  /** An invisible card keeps its data and frees its canvases. */
  hide() {
    this.visible = false;
    this.#charts.forEach((chart) => chart.destroy());
    this.#charts = [];
    this.#chartContainer.replaceChildren();
  }

  repaint() {
    if (!this.visible) return;
    this.hide();
    this.show();
  }

  /** Fetch the series that are due. A failure marks the card until a fetch succeeds; the notice has the details. */
  async refresh(signal) {
    const { period } = this.#view;
    const resolution = PERIODS[period];
    if (period !== this.#period) {
      this.#period = period;
      this.#updateLinks();
      this.#fetchedAt = { series: -Infinity, recent: -Infinity };
    }
    try {
      if (this.#isDue("series", REFRESH_INTERVAL_MS[resolution])) {
        this.#series = toColumns(await fetchQueueMetrics(this.name, period, resolution, signal));
        this.#markFetched("series");
        if (this.visible) this.#draw();
      }
      if (resolution === FINE_RESOLUTION) {
        this.recentSeries = this.#series;
      } else if (this.#isDue("recent", REFRESH_INTERVAL_MS[FINE_RESOLUTION])) {
        this.recentSeries = toColumns(await fetchQueueMetrics(this.name, NUMBERS_PERIOD, FINE_RESOLUTION, signal));
        this.#markFetched("recent");
      }
      this.problem = null;
      this.#showNumbers();
    } catch (error) {
      if (signal.aborted) throw error;
      this.problem = error;
      NUMBERS.filter(([key]) => key !== "depth").forEach(([key]) => this.#setValue(key, formatCount(null)));
    }
    this.#showProblem();
  }

  #isDue(kind, intervalMs) {
    return performance.now() - this.#fetchedAt[kind] >= intervalMs;
  }

  #markFetched(kind) {
    this.#fetchedAt[kind] = performance.now();
  }

  #draw() {
    this.#charts.forEach((chart) => chart.draw(this.#series));
    this.element.dataset.points = this.#series.x.length;
    this.element.dataset.pushed = this.#series.pushed;
    this.element.dataset.maxDepth = maxDepth(this.#series) ?? "";
  }

  #showNumbers() {
    const now = currentNumbers(this.recentSeries);
    const isComplete = !this.recentSeries.isBehind && !this.#series.isUnknown.some(Boolean);
    this.#setValue("in", formatRate(now.inRate));
    this.#setValue("out", formatRate(now.outRate));
    this.#setValue("wait", formatDuration(now.p95Wait));
    this.#setValue("oldest", formatDuration(this.#depth === 0 ? null : now.oldest));
    for (const key of FAILURES) {
      const total = this.#series.failed[key];
      this.#setValue(key, formatTotal(total, isComplete));
      this.#values[key].classList.toggle("some", total > 0);
    }
    const hint = this.element.querySelector(".incomplete");
    hint.hidden = isComplete;
    hint.title = describeUnknown(this.#series.lost);
  }

  #urlOfSeries(series) {
    return viewUrl({ period: this.#view.period, queue: this.name, series });
  }

  /** Point the links to the view of this queue. The URL has the period, so they change with it. */
  #updateLinks() {
    this.element.querySelector("h2 a").href = this.#urlOfSeries("");
    for (const key of FAILURES) {
      this.#values[key].href = this.#urlOfSeries(key) + (key === "dead" ? DEAD_LETTERS_ANCHOR : "");
    }
  }

  #setValue(key, text) {
    const value = this.#values[key];
    if (value.textContent !== text) value.textContent = text;
  }

  #showProblem() {
    const note = this.element.querySelector(".note");
    note.hidden = this.problem === null;
    note.title = this.problem?.message ?? "";
    this.element.classList.toggle("stale", this.problem !== null);
  }

  #onKey(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -12, PageDown: 12 }[event.key];
    if (steps) {
      event.preventDefault();
      this.#charts[0]?.moveCursor(steps);
    } else if (event.key === "Escape") {
      this.#charts[0]?.hideCursor();
    }
  }
}

function describeUnknown(lost) {
  const reason = lost ? `${formatCount(lost)} metric events of this period were lost, of any queue.` : "";
  return `Hatched: events of that time are not counted, or not yet. ${reason}`.trim();
}

function describeDurableQueue({ partitions }) {
  return `${formatCount(partitions)} ${partitions === 1 ? "partition" : "partitions"}`;
}

function describeRunQueue({ running, concurrency, delayed, paused, isOutdated }) {
  if (isOutdated) return "run queue, state unknown";
  const limit = concurrency === null ? "" : ` of ${formatCount(concurrency)}`;
  const states = [`${formatCount(running)}${limit} running`];
  if (delayed) states.push(`${formatCount(delayed)} delayed`);
  if (paused) states.push("paused");
  return `run queue, ${states.join(", ")}`;
}

function formatChange(change) {
  if (change === null || change.amount === 0) return "";
  const span = change.spanMs < 60_000 ? formatDuration(change.spanMs) : "1 min";
  return `${change.amount > 0 ? "+" : "−"}${formatCount(Math.abs(change.amount))} in ${span}`;
}
