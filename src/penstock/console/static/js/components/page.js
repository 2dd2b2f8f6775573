// A page: its heading, the actions beside it, and its content.

import { html, useEffect } from "../html.js";

export function Page({ title, subtitle, actions, className = "", children }) {
  useEffect(() => {
    document.title = `${title} · Penstock`;
  }, [title]);
  return html`
    <div class="page ${className}">
      <header class="page-header">
        <div class="page-title">
          <h1>${title}</h1>
          ${subtitle && html`<p class="subtitle">${subtitle}</p>`}
        </div>
        ${actions && html`<div class="page-actions">${actions}</div>`}
      </header>
      ${children}
    </div>
  `;
}

/** A box with a heading. `label` names it for screen readers if the heading is not text. */
export function Section({ title, actions, className = "", children }) {
  return html`
    <section class="section ${className}">
      ${(title || actions) &&
      html`<header class="section-header">
        <h2>${title}</h2>
        ${actions && html`<div class="section-actions">${actions}</div>`}
      </header>`}
      ${children}
    </section>
  `;
}
