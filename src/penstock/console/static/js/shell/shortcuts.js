// The keyboard shortcuts of every page, and the dialog that lists them.

import { Dialog } from "../components/dialog.js";
import { html, useLayoutEffect } from "../html.js";
import { addShortcut, listShortcuts } from "../keyboard.js";
import { refreshAll } from "../refresh.js";
import { createStore } from "../store.js";

const isOpen = createStore(false);

export const openShortcuts = () => isOpen.set(true);

export function Shortcuts() {
  useLayoutEffect(() => {
    const removers = [
      addShortcut("r", "Refresh the page's data", refreshAll),
      addShortcut("?", "Show the keyboard shortcuts", openShortcuts),
    ];
    return () => removers.forEach((remove) => remove());
  }, []);
  if (!isOpen.use()) return null;
  return html`
    <${Dialog} title="Keyboard shortcuts" onClose=${() => isOpen.set(false)}>
      <dl class="shortcuts">
        ${listShortcuts().map(({ keys, description }) => html`
          <div key=${keys}>
            <dt>${keys.split(" ").map((key) => html`<kbd>${key}</kbd>`)}</dt>
            <dd>${description}</dd>
          </div>
        `)}
      </dl>
    <//>
  `;
}
