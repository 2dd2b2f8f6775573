// What a page shows instead of data. Each reason looks different, so that none is mistaken for another.

import { html } from "../html.js";

export const Loading = () => html`<p class="state loading" role="status">Loading…</p>`;

/** There is nothing of this kind: say how to create the first. */
export const Empty = ({ title, children }) => html`
  <div class="state empty">
    <p class="state-title">${title}</p>
    ${children}
  </div>
`;

/** It exists, and nothing happens in it. */
export const Idle = ({ children }) => html`<p class="state idle">${children ?? "Idle: nothing happened in this time."}</p>`;

/** It was not measured in this time. */
export const NoData = ({ children }) => html`<p class="state no-data">${children ?? "No data was recorded in this time."}</p>`;

/** It cannot be read now: say why. */
export const Unavailable = ({ problem }) => html`
  <div class="state unavailable" role="alert">
    <p class="state-title">${problem.title ?? "Unavailable"}</p>
    <p>${problem.message}</p>
  </div>
`;

/**
 * The content of `useData` or `useLive`: loading, unavailable or `children(data)`. Data from before a failure stays, below the
 * reason.
 */
export function DataState({ state, children }) {
  const { data, problem, isLoading } = state;
  if (data === null) return problem ? html`<${Unavailable} problem=${problem} />` : html`<${Loading} />`;
  return html`
    ${problem && html`<${Unavailable} problem=${problem} />`}
    <div class=${problem ? "outdated" : ""} aria-busy=${isLoading}>${children(data)}</div>
  `;
}
