// The notice about components that are not up. It is shown above every page.

import { describeProblems, useHealth } from "../health.js";
import { html } from "../html.js";

export function Notice() {
  const { data: health, problem } = useHealth();
  const lines = problem ? [problem.message] : describeProblems(health);
  if (lines.length === 0) return null;
  return html`<div class="notice" role="status"><ul>${lines.map((line) => html`<li key=${line}>${line}</li>`)}</ul></div>`;
}
