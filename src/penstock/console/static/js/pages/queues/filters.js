// The filters of the list of queues, and the switch between the table and the charts.

import { formatCount } from "../../format.js";
import { html } from "../../html.js";
import { urlOf, useQueryParams } from "../../location.js";
import { CAPS } from "./caps.js";

const KINDS = [["", "Both kinds"], ["durable", "Durable queues"], ["run", "Run queues"]];
const PROBLEMS = [
  ["", "All queues"],
  ["any", "Any problem"],
  ...Object.entries(CAPS).map(([cap, { label }]) => [cap, label]),
  ["growing", "Growing backlog"],
  ["dead", "Dead letters"],
];

/** `counts` has the number of queues per kind and problem. `onSelect` gets the changed parameters of the URL. */
export const Filters = ({ kind, problem, counts, onSelect }) => html`
  <${Choice} label="Kind" value=${kind} options=${KINDS} counts=${counts} onValue=${(value) => onSelect({ kind: value })} />
  <${Choice} label="Problem" value=${problem} options=${PROBLEMS} counts=${counts} onValue=${(value) => onSelect({ problem: value })} />
`;

const Choice = ({ label, value, options, counts, onValue }) => html`
  <label>
    <span class="visually-hidden">${label}</span>
    <select onChange=${(event) => onValue(event.currentTarget.value)}>
      ${options.map(([key, text]) => html`
        <option key=${key} value=${key} selected=${key === value}>${text}${key in counts ? ` (${formatCount(counts[key])})` : ""}</option>
      `)}
    </select>
  </label>
`;

export function ViewSwitch({ view }) {
  const [query] = useQueryParams();
  const link = (key, label) => html`
    <a href=${urlOf("/console/queues", { ...query, page: "", view: key === "table" ? "" : key })} aria-current=${key === view ? "page" : undefined}>${label}</a>
  `;
  return html`<nav class="tabs" aria-label="View">${link("table", "Table")}${link("charts", "Charts")}</nav>`;
}
