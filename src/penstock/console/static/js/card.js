// One queue on the page: its name, its numbers, its charts.

import { queueMetrics } from "./api.js";
import { Chart, CHARTS } from "./charts.js";
import { count, duration, rate } from "./format.js";
import { columns, current, highestDepth } from "./series.js";

// A coarse series changes slowly; asking for it every two seconds would only cost.
const REFRESH_MS = { "5s": 1_900, "1m": 10_000, "1h": 60_000 };
// Where the chart is coarser than this, the numbers come from a short period of their own.
const FINE = "5s";
const NOW_PERIOD = "5m";

const FACTS = [
  ["depth", "Depth", "messages or tasks waiting now"],
  ["in", "In /s", "pushed or enqueued per second, mean of the last 30 s"],
  ["out", "Out /s", "completed per second, mean of the last 30 s"],
  ["wait", "Wait p95", "highest 5-second p95 of the last minute, from push to pop or from eligible to started"],
  ["oldest", "Oldest", "age of the oldest waiting message or task"],
  ["failed", "Failed", "failed attempts and dead messages or tasks in the period shown"],
];

export class Card {
  visible = false;
  newest = null;
  problem = null;
  #depth = null;
  #facts = {};
  #charts = [];
  #chartHost;
  #series = null;
  #now = null;
  #period = null;
  #fetchedAt = { series: -Infinity, now: -Infinity };

  constructor(queue) {
    this.name = queue.name;
    const made = document.getElementById("card").content.cloneNode(true);
    this.element = made.querySelector("article");
    this.element.dataset.queue = queue.name;
    const heading = this.element.querySelector("h2");
    heading.textContent = queue.name;
    heading.title = queue.name;
    this.#chartHost = this.element.querySelector(".charts");
    this.#chartHost.setAttribute("aria-label", `Charts of ${queue.name}; arrow keys move the cursor`);
    this.#chartHost.addEventListener("keydown", (event) => this.#onKey(event));
    this.#chartHost.addEventListener("blur", () => this.#charts[0]?.leave());
    const list = this.element.querySelector("dl");
    for (const [key, label, about] of FACTS) {
      const row = document.createElement("div");
      row.className = key;
      row.title = about;
      const term = document.createElement("dt");
      term.textContent = label;
      const value = document.createElement("dd");
      value.textContent = "–";
      row.append(term, value);
      list.append(row);
      this.#facts[key] = value;
    }
    this.describe(queue);
  }

  /** What the list of queues says: known even while metrics are away. */
  describe(queue) {
    const { depth } = queue;
    this.element.querySelector(".about").textContent = queue.runs ? aboutRuns(queue) : aboutPartitions(queue);
    this.#depth = depth;
    this.#say("depth", count(depth));
  }

  show() {
    this.visible = true;
    if (this.#charts.length) return;
    this.#charts = CHARTS.map((spec) => new Chart(this.#chartHost, spec));
    if (this.#series) this.#draw();
  }

  /** Off the screen a card keeps its data and gives its canvases back. */
  hide() {
    this.visible = false;
    this.#charts.forEach((chart) => chart.destroy());
    this.#charts = [];
    this.#chartHost.replaceChildren();
  }

  repaint() {
    if (!this.visible) return;
    this.hide();
    this.show();
  }

  /** Fetch what is due. A failure marks the card until a fetch succeeds; the notice above tells the details. */
  async refresh(period, resolution, signal) {
    if (period !== this.#period) {
      this.#period = period;
      this.#fetchedAt = { series: -Infinity, now: -Infinity };
    }
    try {
      if (this.#due("series", REFRESH_MS[resolution])) {
        this.#series = columns(await queueMetrics(this.name, period, resolution, signal));
        this.#took("series");
        if (this.visible) this.#draw();
      }
      if (resolution === FINE) {
        this.#now = this.#series;
      } else if (this.#due("now", REFRESH_MS[FINE])) {
        this.#now = columns(await queueMetrics(this.name, NOW_PERIOD, FINE, signal));
        this.#took("now");
      }
      this.newest = this.#now.newest;
      this.problem = null;
      this.#tell();
    } catch (error) {
      if (signal.aborted) throw error;
      this.problem = error;
    }
    this.#note();
  }

  #due(what, everyMs) {
    return performance.now() - this.#fetchedAt[what] >= everyMs;
  }

  #took(what) {
    this.#fetchedAt[what] = performance.now();
  }

  #draw() {
    this.#charts.forEach((chart) => chart.draw(this.#series));
    this.element.dataset.points = this.#series.x.length;
    this.element.dataset.pushed = this.#series.pushed;
    this.element.dataset.highestDepth = highestDepth(this.#series) ?? "";
  }

  #tell() {
    const now = current(this.#now);
    const { retried, dead, expired } = this.#series.failed;
    this.#facts.depth.dataset.change = change(now.depthChange);
    this.#say("in", rate(now.inRate));
    this.#say("out", rate(now.outRate));
    this.#say("wait", duration(now.p95Wait));
    this.#say("oldest", duration(this.#depth === 0 ? null : now.oldest));
    this.#say("failed", count(retried + dead + expired));
    const row = this.#facts.failed.parentElement;
    row.classList.toggle("some", retried > 0);
    row.classList.toggle("dead", dead + expired > 0);
    row.title = `${retried} to be retried, ${dead} dead, ${expired} expired in the period shown`;
  }

  #say(key, text) {
    const value = this.#facts[key];
    if (value.textContent !== text) value.textContent = text;
  }

  #note() {
    const note = this.element.querySelector(".note");
    note.hidden = this.problem === null;
    note.title = this.problem?.message ?? "";
    this.element.classList.toggle("stale", this.problem !== null);
  }

  #onKey(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -12, PageDown: 12 }[event.key];
    if (steps) {
      event.preventDefault();
      this.#charts[0]?.step(steps);
    } else if (event.key === "Escape") {
      this.#charts[0]?.leave();
    }
  }
}

function aboutPartitions({ partitions }) {
  return `${count(partitions)} ${partitions === 1 ? "partition" : "partitions"}`;
}

function aboutRuns({ running, concurrency, delayed, paused }) {
  const facts = [`${count(running)}${concurrency === null ? "" : ` of ${count(concurrency)}`} running`];
  if (delayed) facts.push(`${count(delayed)} delayed`);
  if (paused) facts.push("paused");
  return `run queue, ${facts.join(", ")}`;
}

function change(amount) {
  if (amount === null || amount === 0) return "";
  return `${amount > 0 ? "+" : "−"}${count(Math.abs(amount))} in 1 min`;
}
