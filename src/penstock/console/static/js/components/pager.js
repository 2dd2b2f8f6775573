// Which rows of a long list are shown, and the buttons to the other pages. Pages count from 1.

import { formatCount } from "../format.js";
import { html } from "../html.js";

export function Pager({ page, pageSize, total, noun = "rows", onPage }) {
  const pages = Math.max(1, Math.ceil(total / pageSize));
  const first = total === 0 ? 0 : (page - 1) * pageSize + 1;
  const last = Math.min(total, page * pageSize);
  return html`
    <nav class="pager" aria-label="Pages of the ${noun}">
      <span role="status">${formatCount(first)}–${formatCount(last)} of ${formatCount(total)} ${noun}</span>
      ${pages > 1 &&
      html`
        <button type="button" disabled=${page <= 1} onClick=${() => onPage(page - 1)}>Previous</button>
        <span>page ${formatCount(page)} of ${formatCount(pages)}</span>
        <button type="button" disabled=${page >= pages} onClick=${() => onPage(page + 1)}>Next</button>
      `}
    </nav>
  `;
}
