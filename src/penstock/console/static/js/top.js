// The bar at the top: health of the parts, freshness of the metrics, and what to do when something is wrong.

import { duration } from "./format.js";

const isUp = (part) => part.status === "up";
const byId = (id) => document.getElementById(id);

let shownParts = "";

/** Touched only when something changed, so that a tooltip stays while it is read. */
export function showParts(health) {
  const parts = Object.entries(health?.parts ?? {});
  const now = JSON.stringify(parts.map(([name, { status, detail }]) => [name, status, detail]));
  if (now === shownParts) return;
  shownParts = now;
  const items = parts.map(([name, part]) => {
    const item = document.createElement("li");
    item.className = isUp(part) ? "up" : "down";
    item.title = part.detail ?? part.status;
    item.textContent = name;
    const state = document.createElement("span");
    state.className = "unseen";
    state.textContent = `: ${part.status}`;
    item.append(state);
    return item;
  });
  byId("parts").replaceChildren(...items);
}

/** `newest` is when the newest counted event happened, in seconds; 0 when there is none. */
export function showFreshness(newest) {
  const shown = byId("freshness");
  shown.hidden = newest === 0;
  const age = Math.max(0, Date.now() / 1_000 - newest);
  shown.textContent = age < 1 ? "newest metric just now" : `newest metric ${duration(age * 1_000)} ago`;
}

/** Each line is a sentence for the reader; none hides the notice. */
export function showNotice(lines) {
  const notice = byId("notice");
  notice.hidden = lines.length === 0;
  const text = lines.join("\n");
  if (notice.textContent !== text) notice.textContent = text;
}

export function partsInTrouble(health) {
  return Object.entries(health?.parts ?? {})
    .filter(([, part]) => !isUp(part))
    .map(([name, part]) => `${name}: ${part.detail ?? part.status}`);
}
