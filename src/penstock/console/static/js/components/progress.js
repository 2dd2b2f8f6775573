// The progress of long work. Without a total, the bar shows only that it goes on.

import { html } from "../html.js";

export const Progress = ({ label, value, total, children }) => html`
  <div class="progress">
    <progress aria-label=${label} value=${total ? value : undefined} max=${total || undefined}></progress>
    <span class="progress-text" role="status">${children}</span>
  </div>
`;
