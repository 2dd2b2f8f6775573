// A figure with its label. `kind`: "warn" or "bad" if it needs attention.

import { html } from "../html.js";

export const Stat = ({ label, value, detail, title, kind = "", children }) => html`
  <div class="stat ${kind}" title=${title}>
    <dt>${label}</dt>
    <dd>${value}${detail && html`<small>${detail}</small>`}</dd>
    ${children}
  </div>
`;

export const Stats = ({ className = "", children }) => html`<dl class="stats ${className}">${children}</dl>`;
