// The page: what is chosen, what is on the screen, and the one loop that keeps it current.

import { health, listQueues, UNREACHABLE } from "./api.js";
import { Card } from "./card.js";
import { poll } from "./poll.js";
import { partsInTrouble, showFreshness, showNotice, showParts } from "./top.js";

const EVERY_MS = 2_000;
const AT_ONCE = 4;
const PAGE = 100;
const MOST = 1_000; // what the API lists at once; beyond that, the search is the way
// Each with a resolution that fits a card's width: finer points would cost much and could not be seen.
const PERIODS = { "5m": "5s", "30m": "5s", "2h": "1m", "24h": "1m", "7d": "1h", "30d": "1h" };
const DEFAULT_PERIOD = "30m";

const byId = (id) => document.getElementById(id);
const main = byId("queues");
const search = byId("search");

const chosen = readChoice();
const cards = new Map();
let limit = PAGE;

// A card near the screen counts as visible, so that scrolling meets charts and not holes.
const watcher = new IntersectionObserver(
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
  const [list, parts] = await Promise.all([
    listQueues({ search: chosen.search, limit }, signal).catch((error) => error),
    health(signal).catch((error) => error),
  ]);
  signal.throwIfAborted();
  const listed = !(list instanceof Error);
  const healthy = !(parts instanceof Error);
  if (listed) showQueues(list);
  showParts(healthy ? parts : null);
  document.body.classList.toggle("unreachable", !listed && list.status === UNREACHABLE);

  const troubles = healthy ? partsInTrouble(parts) : [];
  if (!listed) {
    showNotice([list.message, ...troubles]);
    return;
  }
  const visible = [...cards.values()].filter((card) => card.visible);
  await inTurns(visible, (card) => card.refresh(chosen.period, PERIODS[chosen.period], signal));
  const problems = visible.flatMap((card) => (card.problem ? [card.problem.message] : []));
  showNotice([...new Set([...troubles, ...list.problems, ...problems])].slice(0, 4));
  const newest = visible.flatMap((card) => (card.problem ? [] : [card.newest ?? 0]));
  showFreshness(Math.max(0, ...newest));
  main.setAttribute("aria-busy", "false");
}

/** A few requests at a time: many visible cards must not crowd out the broker's real work. */
async function inTurns(items, work) {
  const left = [...items];
  const turn = async () => {
    while (left.length) await work(left.shift());
  };
  await Promise.all(Array.from({ length: AT_ONCE }, turn));
}

function showQueues({ queues, total }) {
  const names = new Set(queues.map((queue) => queue.name));
  for (const [name, card] of cards) {
    if (names.has(name)) continue;
    watcher.unobserve(card.element);
    card.hide();
    card.element.remove();
    cards.delete(name);
  }
  main.querySelector(":scope > section")?.remove();
  queues.forEach((queue, place) => {
    let card = cards.get(queue.name);
    if (card) {
      card.describe(queue);
    } else {
      card = new Card(queue);
      cards.set(queue.name, card);
    }
    // Moved only when out of place: moving an element would lose its focus.
    if (main.children[place] !== card.element) main.insertBefore(card.element, main.children[place] ?? null);
    watcher.observe(card.element);
  });
  if (queues.length === 0) main.append(chosen.search ? nothingFound() : firstSteps());
  const counted = total === 0 ? "" : countText(queues.length, total);
  if (byId("count").textContent !== counted) byId("count").textContent = counted;
  byId("more").hidden = queues.length >= total || limit >= MOST;
}

function countText(shown, total) {
  const noun = total === 1 ? "queue" : "queues";
  return shown < total ? `${shown} of ${total} ${noun}` : `${total} ${noun}`;
}

function firstSteps() {
  const made = byId("empty").content.cloneNode(true).querySelector("section");
  const command = [
    `curl -X POST ${location.origin}/api/v1/push`,
    `-H 'content-type: application/json'`,
    `-d '{"items": [{"queue": "hello", "payload": {"greeting": "hi"}}]}'`,
  ].join(" \\\n  ");
  made.querySelector("code").textContent = command;
  const button = made.querySelector("button");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(command);
    button.textContent = "Copied";
  });
  return made;
}

function nothingFound() {
  const made = document.createElement("section");
  made.className = "empty";
  const text = document.createElement("p");
  text.textContent = `No queue has “${chosen.search}” in its name.`;
  made.append(text);
  return made;
}

// What is chosen lives in the address, so that a view can be bookmarked and sent to somebody.
function readChoice() {
  const query = new URLSearchParams(location.search);
  const period = query.get("period");
  return { period: Object.hasOwn(PERIODS, period) ? period : DEFAULT_PERIOD, search: query.get("search") ?? "" };
}

function choose(change) {
  Object.assign(chosen, change);
  const query = new URLSearchParams();
  if (chosen.period !== DEFAULT_PERIOD) query.set("period", chosen.period);
  if (chosen.search) query.set("search", chosen.search);
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
  loop.restart();
}

function offerPeriods() {
  for (const period of Object.keys(PERIODS)) {
    const label = document.createElement("label");
    const input = document.createElement("input");
    input.type = "radio";
    input.name = "period";
    input.value = period;
    input.checked = period === chosen.period;
    input.addEventListener("change", () => choose({ period }));
    label.append(input, period);
    byId("periods").append(label);
  }
}

offerPeriods();
search.value = chosen.search;
let typing = 0;
search.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => choose({ search: search.value.trim() }), 200);
});
document.addEventListener("keydown", (event) => {
  const writing = event.target.closest("input[type=search]");
  if (event.key === "/" && !writing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    search.focus();
  }
});
byId("more").addEventListener("click", () => {
  limit = Math.min(MOST, limit + PAGE);
  loop.wake();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  cards.forEach((card) => card.repaint());
});

const loop = poll(update, EVERY_MS);
