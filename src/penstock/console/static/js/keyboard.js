// Keyboard shortcuts: single keys, and sequences such as “g q”.

import { useLayoutEffect } from "./html.js";

const SEQUENCE_TIMEOUT_MS = 1_200;
const shortcuts = new Map();
let prefix = "";
let prefixTimer = 0;

/** Register a shortcut; return the function that removes it. `keys` are separated by a space: "/", "g q". */
export function addShortcut(keys, description, handler) {
  shortcuts.set(keys, { keys, description, handler });
  return () => shortcuts.get(keys)?.handler === handler && shortcuts.delete(keys);
}

/** Register a shortcut of a component, before the user sees the component. */
export function useShortcut(keys, description, handler) {
  useLayoutEffect(() => addShortcut(keys, description, handler), [keys, description, handler]);
}

export const listShortcuts = () => [...shortcuts.values()];

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  const keys = prefix ? `${prefix} ${event.key}` : event.key;
  clearTimeout(prefixTimer);
  prefix = "";
  const shortcut = shortcuts.get(keys);
  if (shortcut) {
    event.preventDefault();
    shortcut.handler();
  } else if (listShortcuts().some((other) => other.keys.startsWith(`${event.key} `))) {
    prefix = event.key;
    prefixTimer = setTimeout(() => (prefix = ""), SEQUENCE_TIMEOUT_MS);
  }
});

const isTyping = (element) => Boolean(element.closest?.("input, textarea, select, [contenteditable]"));
