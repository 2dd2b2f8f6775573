// The cause of an incident with its figures, and the checks that were excluded.

import { Badge } from "../../components/badge.js";
import { Section } from "../../components/page.js";
import { formatCount } from "../../format.js";
import { html } from "../../html.js";

export function Cause({ cause }) {
  if (!cause) return html`<${Section} title="Cause"><p class="muted">No cause was looked for.</p><//>`;
  const { kind, summary, figures = {}, excluded = [] } = cause;
  return html`
    <${Section} title="Cause">
      <p class="sentence"><${Badge} kind=${kind === "unknown" ? "" : "warn"}>${kind.replaceAll("_", " ")}<//> ${summary}</p>
      <${Figures} figures=${figures} />
      ${excluded.length > 0 &&
      html`<details>
        <summary>${excluded.length} other causes were excluded</summary>
        <ul class="excluded">
          ${excluded.map((check) => html`<li key=${check.kind}><b>${check.kind.replaceAll("_", " ")}</b>: ${check.reason}</li>`)}
        </ul>
      </details>`}
    <//>
  `;
}

function Figures({ figures }) {
  const entries = Object.entries(figures);
  if (entries.length === 0) return null;
  return html`<dl class="cause-figures">
    ${entries.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${figureText(value)}</dd></div>`)}
  </dl>`;
}

function figureText(value) {
  if (typeof value === "number") return formatCount(value);
  return typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? "–");
}
