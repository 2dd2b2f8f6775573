// The secret of a token that was created or rotated. It is nowhere else and cannot be read again.

import { CopyButton } from "../../components/copy_button.js";
import { html } from "../../html.js";

export const NewSecret = ({ token: { name, secret }, onClose }) => html`
  <section class="section new-secret" role="status">
    <p>The secret of <b>${name}</b>. Copy it now: it is shown this once.</p>
    <div class="command">
      <pre><code>${secret}</code></pre>
      <${CopyButton} text=${secret} label="Copy the secret" />
    </div>
    <button type="button" onClick=${onClose}>Done</button>
  </section>
`;
