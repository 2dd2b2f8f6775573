// A dialog with a form. It closes when the form is saved; a problem is shown inside it.

import { html, useState } from "../html.js";
import { reportUnauthorized } from "../session.js";
import { Dialog } from "./dialog.js";
import { showToast } from "./toast.js";

/** `save()` returns a promise of the text to show, or of nothing. `action` is the text of the button. */
export function FormDialog({ title, action, save, onClose, className = "", children }) {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setProblem("");
    try {
      const text = await save();
      onClose();
      if (typeof text === "string") showToast(text);
    } catch (error) {
      reportUnauthorized(error);
      if (error.name !== "ApiProblem") console.error(error);
      setProblem(error.message);
      setBusy(false);
    }
  };
  return html`
    <${Dialog} title=${title} onClose=${onClose} className=${className}>
      <form class="stacked" onSubmit=${submit}>
        ${children}
        ${problem && html`<p class="problem" role="alert">${problem}</p>`}
        <footer class="dialog-actions">
          <button type="button" onClick=${onClose}>Cancel</button>
          <button type="submit" class="primary" disabled=${isBusy} aria-busy=${isBusy}>${action}</button>
        </footer>
      </form>
    <//>
  `;
}
