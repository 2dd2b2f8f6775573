// What a change changed: the fields of the state before and after that differ.

import { html } from "../../html.js";

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** Return the fields that differ as `{ path, before, after }`; a side that has no such field is undefined. */
export function differenceOf(before, after, path = "") {
  if (isObject(before) && isObject(after)) {
    const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
    return names.flatMap((name) => differenceOf(before[name], after[name], path ? `${path}.${name}` : name));
  }
  if (JSON.stringify(before) === JSON.stringify(after)) return [];
  if (path === "" && (isObject(before) || isObject(after))) return differenceOf(before ?? {}, after ?? {});
  return [{ path, before, after }];
}

const textOf = (value) => (value === undefined || value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value));

export function Difference({ before, after }) {
  const fields = differenceOf(before, after);
  if (fields.length === 0) return html`<p class="muted">The state before and after is the same, or was not recorded.</p>`;
  return html`
    <table class="difference">
      <thead><tr><th scope="col">Field</th><th scope="col">Before</th><th scope="col">After</th></tr></thead>
      <tbody>
        ${fields.map(({ path, before: old, after: changed }) => html`
          <tr key=${path}>
            <th scope="row">${path || "value"}</th>
            <td class="removed">${textOf(old)}</td>
            <td class="added">${textOf(changed)}</td>
          </tr>
        `)}
      </tbody>
    </table>
  `;
}
