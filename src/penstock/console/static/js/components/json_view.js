// A JSON value as indented text. Its size is bounded: larger values show their beginning first.

import { formatBytes } from "../format.js";
import { html, useMemo, useState } from "../html.js";
import { CopyButton } from "./copy_button.js";

const MAX_SHOWN = 20_000;

export function JsonView({ value, label = "Payload" }) {
  const text = useMemo(() => JSON.stringify(value, null, 2) ?? "", [value]);
  const [isWhole, setWhole] = useState(false);
  const isCut = text.length > MAX_SHOWN && !isWhole;
  return html`
    <div class="json">
      <pre tabindex="0" role="region" aria-label=${label}><code>${isCut ? `${text.slice(0, MAX_SHOWN)}…` : text}</code></pre>
      <div class="json-actions">
        <${CopyButton} text=${text} />
        ${isCut && html`<button type="button" onClick=${() => setWhole(true)}>Show all ${formatBytes(text.length)}</button>`}
      </div>
    </div>
  `;
}
