// The top of the page: health of the components, freshness of the metrics, and a notice about problems.

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

/** Show up to when all events are counted. `ageS` is null if that is unknown. */
export function showFreshness(ageS) {
  const element = byId("freshness");
  element.hidden = ageS === null;
  if (ageS !== null) element.textContent = `metrics complete up to ${formatDuration(ageS * 1_000)} ago`;
}

/** Show one line per problem; without lines, hide the notice. */
export function showNotice(lines) {
  const notice = byId("notice");
  notice.hidden = lines.length === 0;
  const text = lines.join("\n");
  if (notice.textContent !== text) notice.textContent = text;
}

/**
 * Return one line per problem: metrics that are behind, then components that are not up. `delay` says since when
 * metrics are behind, or is null; the state of the pipeline is then its reason.
 */
export function describeProblems(health, delay) {
  const failed = Object.entries(health?.parts ?? {}).filter(([, component]) => !isUp(component));
  const describe = ([name, component]) => `${name}: ${component.detail ?? component.status}`;
  if (delay === null) return failed.map(describe);
  const others = failed.filter(([name]) => name !== "pipeline");
  return [`${delay} ${describeReason(health?.parts?.pipeline, others.length > 0)}`.trim(), ...others.map(describe)];
}

function describeReason(pipeline, hasOtherFailure) {
  if (!pipeline) return "";
  if (!isUp(pipeline)) return pipeline.detail ?? "The pipeline is down.";
  return hasOtherFailure ? "" : "The pipeline runs but has not counted newer events yet.";
}
