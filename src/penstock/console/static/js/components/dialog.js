// Modal dialogs, and the question before an action that cannot be undone.

import { html, useEffect, useId, useRef, useState } from "../html.js";
import { createStore } from "../store.js";

export function Dialog({ title, onClose, className = "", children }) {
  const dialog = useRef(null);
  const titleId = useId();
  useEffect(() => {
    const opener = document.activeElement;
    dialog.current.showModal();
    return () => opener?.focus?.();
  }, []);
  return html`
    <dialog ref=${dialog} class="dialog ${className}" aria-labelledby=${titleId} onClose=${onClose}>
      <header class="dialog-header">
        <h2 id=${titleId}>${title}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick=${onClose}>✕</button>
      </header>
      ${children}
    </dialog>
  `;
}

const question = createStore(null);

/**
 * Ask whether to do something; return a promise of the answer. `action` is the text of the button. With `typedText`,
 * the user has to type it first: use it where data is lost.
 */
export function confirm({ title, text, action, isDangerous = false, typedText = "" }) {
  return new Promise((resolve) => question.set({ title, text, action, isDangerous, typedText, resolve }));
}

/** The place of the question. The shell renders it once. */
export function ConfirmHost() {
  const current = question.use();
  if (!current) return null;
  const answer = (isConfirmed) => {
    question.set(null);
    current.resolve(isConfirmed);
  };
  return html`<${Question} ...${current} answer=${answer} />`;
}

function Question({ title, text, action, isDangerous, typedText, answer }) {
  const [typed, setTyped] = useState("");
  const submit = (event) => {
    event.preventDefault();
    answer(true);
  };
  return html`
    <${Dialog} title=${title} onClose=${() => answer(false)}>
      <form onSubmit=${submit}>
        <div class="dialog-text">${text}</div>
        ${typedText &&
        html`<label class="field">
          <span>Type <b>${typedText}</b> to confirm</span>
          <input value=${typed} onInput=${(event) => setTyped(event.currentTarget.value)} autocomplete="off" spellcheck=${false} />
        </label>`}
        <footer class="dialog-actions">
          <button type="button" onClick=${() => answer(false)}>Cancel</button>
          <button type="submit" class=${isDangerous ? "danger" : "primary"} disabled=${typed !== typedText}>${action}</button>
        </footer>
      </form>
    <//>
  `;
}
