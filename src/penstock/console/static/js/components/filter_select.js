// A selection in the bar above a list. `options`: `[value, text]` pairs.

import { html } from "../html.js";

export const FilterSelect = ({ label, value, options, onValue }) => html`
  <label>
    <span class="visually-hidden">${label}</span>
    <select title=${label} value=${value} onChange=${(event) => onValue(event.currentTarget.value)}>
      ${options.map(([option, text]) => html`<option key=${option} value=${option} selected=${option === value}>${text}</option>`)}
    </select>
  </label>
`;
