// A payload in a table: its beginning, and all of it in a dialog.

import { Dialog } from "../../components/dialog.js";
import { JsonView } from "../../components/json_view.js";
import { html, useState } from "../../html.js";

const MAX_SHOWN = 200;

/** `name` is that of the message or task; `problem` says why there is no payload. */
export function PayloadCell({ name, payload, problem }) {
  const [isOpen, setOpen] = useState(false);
  if (problem) return html`<span class="muted">${problem}</span>`;
  const text = JSON.stringify(payload) ?? "";
  return html`
    <button type="button" class="quiet small payload-text" title="Show the payload" onClick=${() => setOpen(true)}><code>${text.slice(0, MAX_SHOWN)}</code></button>
    ${isOpen && html`<${Dialog} title="Payload of ${name}" className="wide" onClose=${() => setOpen(false)}><${JsonView} value=${payload} /><//>`}
  `;
}
