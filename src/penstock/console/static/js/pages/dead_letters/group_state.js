// The state of an error group, in words.

import { Badge } from "../../components/badge.js";
import { formatCount, formatDateTime } from "../../format.js";
import { html } from "../../html.js";

/** The most urgent first: the text of each state, and its colour. */
export const STATES = [
  ["back_again", "back again", "bad"],
  ["new", "new", "warn"],
  ["open", "open", "info"],
  ["ignored", "ignored", ""],
  ["resolved", "resolved", "ok"],
];

export function StateBadge({ group }) {
  const [, text, kind] = STATES.find(([state]) => state === group.state) ?? ["", group.state, ""];
  return html`<${Badge} kind=${kind} title=${describeState(group)}>${text}<//>`;
}

/** Say what the state of a group means, and until when it lasts. */
export function describeState(group) {
  switch (group.state) {
    case "new":
      return "No operator has set a state yet.";
    case "open":
      return "An operator works on this error.";
    case "resolved":
      return "Resolved. One more dead letter brings it back.";
    case "ignored":
      return `Ignored ${describeConditions(group.ignoredUntil)}.`;
    case "back_again":
      return group.returnedFrom === "resolved"
        ? "Dead letters came after it was resolved."
        : `It was ignored ${describeConditions(group.ignoredUntil)}, and this has happened.`;
    default:
      return "";
  }
}

/** Describe what ends the ignoring of a group: whichever of the conditions comes first. */
export function describeConditions(conditions) {
  const { time = null, count = null, ratePerHour = null } = conditions ?? {};
  const texts = [
    time && `until ${formatDateTime(Date.parse(time))}`,
    count && `until ${formatCount(count)} more dead letters`,
    ratePerHour && `until more than ${formatCount(ratePerHour)} dead letters in one hour`,
  ].filter(Boolean);
  return texts.length ? texts.join(", or ") : "without an end";
}
