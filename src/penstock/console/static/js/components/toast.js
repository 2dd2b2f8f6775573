// Short messages about the result of an action.

import { html } from "../html.js";
import { createStore } from "../store.js";

const SHOWN_MS = { ok: 5_000, problem: 15_000 };
const toasts = createStore([]);
let lastId = 0;

/** Show a message: `kind` is "ok" or "problem". */
export function showToast(text, { kind = "ok" } = {}) {
  const id = ++lastId;
  toasts.set([...toasts.get(), { id, text, kind }]);
  setTimeout(() => hide(id), SHOWN_MS[kind]);
}

const hide = (id) => toasts.set(toasts.get().filter((toast) => toast.id !== id));

/** The place of the messages. The shell renders it once. */
export function ToastHost() {
  const shown = toasts.use();
  return html`
    <div class="toasts" role="status">
      ${shown.map(({ id, text, kind }) => html`
        <div key=${id} class="toast ${kind}">
          <span>${text}</span>
          <button type="button" class="quiet" aria-label="Dismiss" onClick=${() => hide(id)}>✕</button>
        </div>
      `)}
    </div>
  `;
}
