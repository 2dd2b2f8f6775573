// The dead letters of one queue, grouped by error, with the commands that list and requeue them.

import { fetchErrorGroups } from "./api.js";
import { selectedEnvironment } from "./environment.js";
import { formatCount, formatTime } from "./format.js";

const REFRESH_INTERVAL_MS = 10_000;
const SECONDS_RESOLUTION = 1;

export class DeadLetters {
  #section = document.getElementById("dead-letters");
  #queue;
  #fetchedAtMs = -Infinity;

  constructor(queue) {
    this.#queue = queue;
    const name = quoteForShell(queue);
    this.#section.querySelector("code").textContent = [
      `penstock dlq ls --queue ${name}`,
      `penstock dlq requeue --queue ${name} --dry-run`,
    ].join("\n");
    this.#section.hidden = false;
  }

  /** Fetch and show the error groups if they are due. Without them the section says why. */
  async refresh(signal) {
    if (performance.now() - this.#fetchedAtMs < REFRESH_INTERVAL_MS) return;
    try {
      this.#show(await fetchErrorGroups(this.#queue, signal));
      this.#fetchedAtMs = performance.now();
    } catch (error) {
      if (signal.aborted) throw error;
      this.#showSummary(error.message);
    }
  }

  #show({ groups, complete, pagination }) {
    this.#section.querySelector("table").hidden = groups.length === 0;
    this.#section.querySelector("tbody").replaceChildren(...groups.map((group) => this.#createRow(group)));
    this.#showSummary(describeGroups(groups, pagination.total, complete));
  }

  #showSummary(text) {
    this.#section.querySelector(".summary").textContent = text;
  }

  #createRow({ errorGroup, error, deadLetters, consumerGroups, lastFailedAt }) {
    const link = document.createElement(selectedEnvironment() ? "span" : "a"); // a link cannot name an environment
    link.textContent = error;
    if (link.tagName === "A") {
      link.href = `/api/v1/dlq?${new URLSearchParams({ queue: this.#queue, errorGroup })}`;
      link.title = "List these dead letters as JSON";
    }
    const lastFailed = lastFailedAt ? formatTime(Date.parse(lastFailedAt) / 1_000, SECONDS_RESOLUTION) : "–";
    const row = document.createElement("tr");
    for (const content of [link, formatCount(deadLetters), describeConsumerGroups(consumerGroups), lastFailed]) {
      const cell = document.createElement("td");
      cell.append(content);
      row.append(cell);
    }
    return row;
  }
}

function describeGroups(groups, total, isComplete) {
  if (groups.length === 0) return "This queue has no dead letters.";
  const count = groups.reduce((sum, { deadLetters }) => sum + deadLetters, 0);
  const noun = total === 1 ? "error" : "errors";
  const atLeast = isComplete && groups.length === total ? "" : "at least ";
  const shown = groups.length < total ? `, of which the ${groups.length} most frequent are shown` : "";
  return `Now ${atLeast}${formatCount(count)}, with ${total} different ${noun}${shown}.`;
}

/** Messages that were popped without a consumer group belong to the group of the queue mode. */
function describeConsumerGroups(names) {
  return names.map((name) => (name === "__QUEUE_MODE__" ? "(no group)" : name)).join(", ");
}

/** Quote a text that a shell would not read as one plain word. */
function quoteForShell(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
