// A short state, such as “paused”. `kind`: "ok", "warn", "bad", "info" or empty.

import { html } from "../html.js";

export const Badge = ({ kind = "", title, children }) => html`<span class="badge ${kind}" title=${title}>${children}</span>`;
