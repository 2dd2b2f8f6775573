// A table of rows. It scrolls inside its box when the screen is narrow.

import { html } from "../html.js";

/**
 * `columns`: `{ key, label, title?, align? ("end"), isSortable?, className?, render?(row) }`. `sort` is `{ key, order }` with order
 * "asc" or "desc"; `onSort(key, order)` is called when the user selects a column.
 */
export function DataTable({ caption, columns, rows, rowKey, rowClass, sort, onSort, firstOrder = "desc" }) {
  return html`
    <div class="table-box" tabindex="0" role="region" aria-label=${caption}>
      <table>
        <caption class="visually-hidden">${caption}</caption>
        <thead>
          <tr>
            ${columns.map((column) => html`<${HeaderCell} key=${column.key} ...${{ column, sort, onSort, firstOrder }} />`)}
          </tr>
        </thead>
        <tbody>
          ${rows.map((row) => html`
            <tr key=${rowKey(row)} class=${rowClass?.(row) ?? ""}>
              ${columns.map(({ key, align, className = "", render }) => html`
                <td class="${align === "end" ? "number" : ""} ${className}">${render ? render(row) : row[key]}</td>
              `)}
            </tr>
          `)}
        </tbody>
      </table>
    </div>
  `;
}

/** The last column of a table: what the user may do with a row. `render(row)` returns its buttons. */
export const actionsColumn = (render) => ({ key: "actions", label: "Actions", isLabelHidden: true, align: "end", render });

function HeaderCell({ column, sort, onSort, firstOrder }) {
  const { key, label, title, align, isSortable, isLabelHidden } = column;
  const isSorted = sort?.key === key;
  const text = isLabelHidden ? html`<span class="visually-hidden">${label}</span>` : label;
  const className = align === "end" ? "number" : "";
  if (!isSortable) return html`<th scope="col" class=${className} title=${title}>${text}</th>`;
  const nextOrder = isSorted ? (sort.order === "asc" ? "desc" : "asc") : column.firstOrder ?? firstOrder;
  const ariaSort = isSorted ? (sort.order === "asc" ? "ascending" : "descending") : "none";
  return html`
    <th scope="col" class=${className} title=${title} aria-sort=${ariaSort}>
      <button type="button" class="sort" onClick=${() => onSort(key, nextOrder)}>
        ${text}<span class="sort-mark" aria-hidden="true">${isSorted ? (sort.order === "asc" ? "↑" : "↓") : ""}</span>
      </button>
    </th>
  `;
}
