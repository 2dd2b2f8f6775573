// A search field that reports its text shortly after the last key press. The key “/” moves the focus to it.

import { html, useEffect, useRef, useState } from "../html.js";
import { useShortcut } from "../keyboard.js";

const DELAY_MS = 200;

export function SearchBox({ label, placeholder, value, onSearch }) {
  const [text, setText] = useState(value);
  const input = useRef(null);
  const timer = useRef(0);
  const focus = useRef(() => input.current?.focus());
  useShortcut("/", "Search on this page", focus.current);

  // The value changes with the URL, for example when the user goes back.
  useEffect(() => {
    if (document.activeElement !== input.current) setText(value);
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);

  const change = (event) => {
    const newText = event.currentTarget.value;
    setText(newText);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onSearch(newText.trim()), DELAY_MS);
  };
  return html`
    <label class="search">
      <span class="visually-hidden">${label}</span>
      <svg viewBox="0 0 16 16" aria-hidden="true"><circle cx="7" cy="7" r="4.5" /><path d="m10.5 10.5 3.5 3.5" /></svg>
      <input ref=${input} type="search" placeholder=${placeholder ?? label} value=${text} onInput=${change} autocomplete="off" spellcheck=${false} />
      <kbd aria-hidden="true">/</kbd>
    </label>
  `;
}
