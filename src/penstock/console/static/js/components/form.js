// Labelled fields of forms.

import { html, useId } from "../html.js";

/** A label, a control and a hint. `children(id, hintId)` returns the control. */
export function Field({ label, hint, children }) {
  const id = useId();
  const hintId = hint ? `${id}-hint` : undefined;
  return html`
    <div class="field">
      <label for=${id}>${label}</label>
      ${children(id, hintId)}
      ${hint && html`<p class="hint" id=${hintId}>${hint}</p>`}
    </div>
  `;
}

/** A field with an input. `onValue(text)` gets its new text; other attributes go to the input. */
export const TextField = ({ label, hint, value, onValue, type = "text", ...attributes }) => html`
  <${Field} label=${label} hint=${hint}>
    ${(id, hintId) => html`
      <input id=${id} aria-describedby=${hintId} type=${type} value=${value} onInput=${(event) => onValue(event.currentTarget.value)} autocomplete="off" spellcheck=${false} ...${attributes} />
    `}
  <//>
`;

export const TextAreaField = ({ label, hint, value, onValue, ...attributes }) => html`
  <${Field} label=${label} hint=${hint}>
    ${(id, hintId) => html`
      <textarea id=${id} aria-describedby=${hintId} value=${value} onInput=${(event) => onValue(event.currentTarget.value)} spellcheck=${false} ...${attributes}></textarea>
    `}
  <//>
`;

/** `options`: `[value, text]` pairs. */
export const SelectField = ({ label, hint, value, options, onValue, ...attributes }) => html`
  <${Field} label=${label} hint=${hint}>
    ${(id, hintId) => html`
      <select id=${id} aria-describedby=${hintId} value=${value} onChange=${(event) => onValue(event.currentTarget.value)} ...${attributes}>
        ${options.map(([option, text]) => html`<option key=${option} value=${option} selected=${option === value}>${text}</option>`)}
      </select>
    `}
  <//>
`;

export const CheckboxField = ({ label, hint, checked, onValue, ...attributes }) => html`
  <label class="checkbox">
    <input type="checkbox" checked=${checked} onChange=${(event) => onValue(event.currentTarget.checked)} ...${attributes} />
    <span>${label}${hint && html`<small>${hint}</small>`}</span>
  </label>
`;
