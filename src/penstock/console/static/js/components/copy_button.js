// A button that copies a text.

import { html, useState } from "../html.js";

const SHOWN_MS = 2_000;

export function CopyButton({ text, label = "Copy" }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), SHOWN_MS);
  };
  return html`<button type="button" class="copy" onClick=${copy}>${isCopied ? "Copied" : label}</button>`;
}

/** A command for the shell with a button that copies it. */
export const Command = ({ text }) => html`
  <div class="command">
    <pre><code>${text}</code></pre>
    <${CopyButton} text=${text} />
  </div>
`;
