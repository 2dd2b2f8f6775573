// The bar at the top: health of the components, freshness of the metrics, and a notice about problems.

import { formatDuration } from "./format.js";

const isUp = (component) => component.status === "up";
const byId = (id) => document.getElementById(id);

let shownState = "";

/** Update the list only if something has changed, so that an open tooltip stays open. */
export function showComponents(health) {
  const components = Object.entries(health?.parts ?? {});
  const state = JSON.stringify(components.map(([name, { status, detail }]) => [name, status, detail]));
  if (state === shownState) return;
  shownState = state;
  const items = components.map(([name, component]) => {
    const item = document.createElement("li");
    item.className = isUp(component) ? "up" : "down";
    item.title = component.detail ?? component.status;
    item.textContent = name;
    const status = document.createElement("span");
    status.className = "visually-hidden";
    status.textContent = `: ${component.status}`;
    item.append(status);
    return item;
  });
  byId("components").replaceChildren(...items);
}

/** Show the age of the newest counted event. `newestS` is its time in seconds; 0 means none. */
export function showFreshness(newestS) {
  const element = byId("freshness");
  element.hidden = newestS === 0;
  const ageS = Math.max(0, Date.now() / 1_000 - newestS);
  element.textContent = ageS < 1 ? "metrics up to date" : `newest metrics ${formatDuration(ageS * 1_000)} ago`;
}

/** Show one line per problem; without lines, hide the notice. */
export function showNotice(lines) {
  const notice = byId("notice");
  notice.hidden = lines.length === 0;
  const text = lines.join("\n");
  if (notice.textContent !== text) notice.textContent = text;
}

/** Return one line per component that is not up. */
export function describeFailedComponents(health) {
  return Object.entries(health?.parts ?? {})
    .filter(([, component]) => !isUp(component))
    .map(([name, component]) => `${name}: ${component.detail ?? component.status}`);
}
