// The page: the selected view, the cards on it, and the loop that refreshes them.

import { fetchHealth, listQueues } from "./api.js";
import { Card } from "./card.js";
import { DeadLetters } from "./dead_letters.js";
import { formatTime } from "./format.js";
import { MetricsDelay } from "./metrics_delay.js";
import { poll } from "./poll.js";
import { isLoginShown, requiresLogin, showSession } from "./session.js";
import { offerTokens } from "./tokens.js";
import { describeProblems, showComponents, showFreshness, showNotice } from "./top.js";
import { DEAD_LETTERS_ANCHOR, PERIODS, readViewFromUrl, viewUrl } from "./view.js";

const POLL_INTERVAL_MS = 2_000;
const MAX_CONCURRENT_REQUESTS = 4;
const MAX_NOTICE_LINES = 4;
const PAGE_SIZE = 100;
const MAX_QUEUES = 1_000; // the limit of the API; more queues can only be found by search

const byId = (id) => document.getElementById(id);
const main = byId("queues");
const search = byId("search");

const view = readViewFromUrl();
const deadLetters = view.queue ? new DeadLetters(view.queue) : null;
const cards = new Map();
const metricsDelay = new MetricsDelay();
let limit = PAGE_SIZE;
let listedAtS = null;
let session = null;

// Cards near the screen count as visible, so that their charts are ready when the user scrolls.
const visibilityObserver = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      const card = cards.get(target.dataset.queue);
      if (isIntersecting) card?.show();
      else card?.hide();
    }
    loop.wake();
  },
  { rootMargin: "150px" },
);

async function update(signal) {
  if (isLoginShown()) return;
  const [list, health] = await Promise.all([
    listViewedQueues(signal).catch((error) => error),
    fetchHealth(signal).catch((error) => error),
    session === null ? refreshSession(signal) : null,
  ]);
  signal.throwIfAborted();
  if (requiresLogin(list)) await refreshSession(signal);
  if (isLoginShown()) return;
  const hasList = !(list instanceof Error);
  const knownHealth = health instanceof Error ? null : health;
  showComponents(knownHealth);
  document.body.classList.toggle("outdated", !hasList);
  if (!hasList) {
    showNotice([`${list.message} ${describeListAge()}`.trim(), ...describeProblems(knownHealth, null)]);
    return;
  }
  listedAtS = Date.now() / 1_000;
  showQueues(list);
  const visible = [...cards.values()].filter((card) => card.visible);
  await forEachConcurrently(visible, (card) => card.refresh(signal));
  await deadLetters?.refresh(signal);
  if (visible.length) scrollToDeadLettersOnce();
  visible.filter((card) => card.problem === null).forEach((card) => metricsDelay.update(card.recentSeries));
  const delay = visible.length ? metricsDelay.describe() : null;
  const failures = visible.flatMap((card) => (card.problem ? [card.problem.message] : []));
  const lines = [...describeProblems(knownHealth, delay), ...list.problems, ...failures];
  showNotice([...new Set(lines)].slice(0, MAX_NOTICE_LINES));
  showFreshness(visible.length && delay === null ? metricsDelay.ageS : null);
  main.setAttribute("aria-busy", "false");
}

/** Show who is logged in. A failure is that of the list too, which the notice shows; the next run tries again. */
async function refreshSession(signal) {
  session = await showSession(signal).catch(() => null);
  offerTokens(session);
}

/** List the queues that the view shows: those whose names match the search, or the one queue of the URL. */
async function listViewedQueues(signal) {
  if (!view.queue) return listQueues({ search: view.search, limit }, signal);
  const list = await listQueues({ search: view.queue, limit: MAX_QUEUES }, signal);
  const queues = list.queues.filter(({ name }) => name === view.queue);
  return { ...list, queues, total: queues.length };
}

// The charts above the section are created after the page has loaded, so the browser cannot scroll to it.
let hasScrolled = false;
function scrollToDeadLettersOnce() {
  if (!hasScrolled && location.hash === DEAD_LETTERS_ANCHOR) byId("dead-letters").scrollIntoView();
  hasScrolled = true;
}

/** Say how old the shown queues are while the list cannot be read. */
function describeListAge() {
  return listedAtS === null ? "" : `The numbers below are from ${formatTime(listedAtS, 1)}.`;
}

/** Call `work` for each item, a few at a time: refreshing many cards must not slow down the broker. */
async function forEachConcurrently(items, work) {
  const remaining = [...items];
  const worker = async () => {
    while (remaining.length) await work(remaining.shift());
  };
  await Promise.all(Array.from({ length: MAX_CONCURRENT_REQUESTS }, worker));
}

function showQueues({ queues, total }) {
  const names = new Set(queues.map((queue) => queue.name));
  for (const [name, card] of cards) {
    if (names.has(name)) continue;
    visibilityObserver.unobserve(card.element);
    card.hide();
    card.element.remove();
    cards.delete(name);
  }
  main.querySelector(":scope > section")?.remove();
  queues.forEach((queue, position) => {
    let card = cards.get(queue.name);
    if (card) {
      card.update(queue);
    } else {
      card = new Card(queue, view);
      cards.set(queue.name, card);
    }
    // Moving an element loses its focus, so only misplaced ones are moved.
    if (main.children[position] !== card.element) main.insertBefore(card.element, main.children[position] ?? null);
    visibilityObserver.observe(card.element);
  });
  if (queues.length === 0) main.append(view.search || view.queue ? createNoMatchMessage() : createFirstSteps());
  const text = total === 0 || view.queue ? "" : queueCountText(queues.length, total);
  if (byId("count").textContent !== text) byId("count").textContent = text;
  byId("more").hidden = queues.length >= total || limit >= MAX_QUEUES;
}

function queueCountText(shown, total) {
  const noun = total === 1 ? "queue" : "queues";
  return shown < total ? `${shown} of ${total} ${noun}` : `${total} ${noun}`;
}

function createFirstSteps() {
  const section = byId("empty").content.cloneNode(true).querySelector("section");
  const command = [
    `curl -X POST ${location.origin}/api/v1/push`,
    `-H 'content-type: application/json'`,
    ...(session?.subject === "local" ? [] : [`-H "authorization: Bearer $PENSTOCK_TOKEN"`]),
    `-d '{"items": [{"queue": "hello", "payload": {"greeting": "hi"}}]}'`,
  ].join(" \\\n  ");
  section.querySelector("code").textContent = command;
  const button = section.querySelector("button");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(command);
    button.textContent = "Copied";
  });
  return section;
}

function createNoMatchMessage() {
  const section = document.createElement("section");
  section.className = "empty";
  const text = document.createElement("p");
  text.textContent = view.queue ? `Queue “${view.queue}” does not exist.` : `No queue has “${view.search}” in its name.`;
  section.append(text);
  return section;
}

function changeView(change) {
  Object.assign(view, change);
  history.replaceState(null, "", viewUrl(view));
  showViewLinks();
  if (view.queue) cards.forEach((card) => card.repaint()); // the legend links to the same period
  loop.restart();
}

function showViewLinks() {
  byId("all-queues").hidden = !view.queue;
  byId("all-queues").href = viewUrl({ period: view.period });
  search.parentElement.hidden = Boolean(view.queue);
}

function createPeriodButtons() {
  for (const period of Object.keys(PERIODS)) {
    const label = document.createElement("label");
    const input = document.createElement("input");
    input.type = "radio";
    input.name = "period";
    input.value = period;
    input.checked = period === view.period;
    input.addEventListener("change", () => changeView({ period }));
    label.append(input, period);
    byId("periods").append(label);
  }
}

createPeriodButtons();
showViewLinks();
search.value = view.search;
let searchTimer = 0;
search.addEventListener("input", () => {
  clearTimeout(searchTimer);
  searchTimer = setTimeout(() => changeView({ search: search.value.trim() }), 200);
});
document.addEventListener("keydown", (event) => {
  const isInSearch = event.target.closest("input[type=search]");
  if (event.key === "/" && !isInSearch && !view.queue && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    search.focus();
  }
});
byId("more").addEventListener("click", () => {
  limit = Math.min(MAX_QUEUES, limit + PAGE_SIZE);
  loop.wake();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  cards.forEach((card) => card.repaint());
});

const loop = poll(update, POLL_INTERVAL_MS);
