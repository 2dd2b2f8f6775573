// The buttons to the previous and the next page of a list whose length is not known. Pages count from 1.

import { formatCount } from "../format.js";
import { html } from "../html.js";

export function StepPager({ page, hasNext, onPage }) {
  if (page <= 1 && !hasNext) return null;
  return html`
    <nav class="pager" aria-label="Pages of the list">
      <button type="button" disabled=${page <= 1} onClick=${() => onPage(page - 1)}>Previous</button>
      <span>page ${formatCount(page)}</span>
      <button type="button" disabled=${!hasNext} onClick=${() => onPage(page + 1)}>Next</button>
    </nav>
  `;
}

/** Return the page of the URL parameter as a number, the offset of its first row, and one row more than it shows. */
export function pageWindow(text, pageSize) {
  const page = Math.max(1, Number.parseInt(text, 10) || 1);
  return { page, offset: (page - 1) * pageSize, limit: pageSize + 1 };
}
