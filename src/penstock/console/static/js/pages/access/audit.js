// The audit log: every call that changed something, and every call that was denied.

import { exportAuditEntries, fetchAuditEntries } from "../../api/access.js";
import { ActionButton } from "../../components/action_button.js";
import { Badge } from "../../components/badge.js";
import { DataTable } from "../../components/data_table.js";
import { Dialog } from "../../components/dialog.js";
import { FilterSelect } from "../../components/filter_select.js";
import { JsonView } from "../../components/json_view.js";
import { Section } from "../../components/page.js";
import { SearchBox } from "../../components/search_box.js";
import { DataState, Empty } from "../../components/states.js";
import { Time } from "../../components/time.js";
import { html } from "../../html.js";
import { useQueryParams } from "../../location.js";
import { useData } from "../../use_data.js";
import { Difference } from "./difference.js";

const PAGE_SIZE = 100;
const RESULTS = [["", "any result"], ["false", "allowed"], ["true", "denied"]];
const METHODS = [["", "any method"], ...["POST", "PUT", "PATCH", "DELETE", "GET"].map((method) => [method, method])];

export function AuditTab() {
  const [params, setParams] = useQueryParams();
  const { object = "", subject = "", action = "", denied = "", from = "", to = "", cursor = "", entry = "" } = params;
  const filter = { object, subject, action, denied, from: isoOf(from), to: isoOf(to) };
  const deps = [...Object.values(filter), cursor];
  const state = useData((signal) => fetchAuditEntries({ ...filter, cursor, limit: PAGE_SIZE }, signal), deps);
  const change = (changes) => setParams({ ...changes, cursor: "" });
  const opened = state.data?.entries.find(({ id }) => id === entry);
  return html`
    <div class="tools">
      <${SearchBox} label="Object" placeholder="Queue, rule, token …" value=${object} onSearch=${(text) => change({ object: text })} />
      <${FilterInput} label="Subject" value=${subject} placeholder="token:NAME, user:NAME" onValue=${(text) => change({ subject: text })} />
      <${FilterSelect} label="Method" value=${action} options=${METHODS} onValue=${(value) => change({ action: value })} />
      <${FilterSelect} label="Result" value=${denied} options=${RESULTS} onValue=${(value) => change({ denied: value })} />
      <${FilterInput} label="From" type="datetime-local" value=${from} onValue=${(text) => change({ from: text })} />
      <${FilterInput} label="To" type="datetime-local" value=${to} onValue=${(text) => change({ to: text })} />
      <${ActionButton} action=${() => download(filter)}>Export<//>
    </div>
    <${DataState} state=${state}>
      ${({ entries, nextCursor }) => html`
        <${Section}>
          ${entries.length === 0 ? html`<${Empty} title="No entry matches." />` : html`<${EntryTable} rows=${entries} onOpen=${(id) => setParams({ entry: id }, { push: true })} />`}
        <//>
        <nav class="pager" aria-label="Pages of the audit log">
          ${cursor && html`<button type="button" onClick=${() => setParams({ cursor: "" })}>Latest</button>`}
          ${nextCursor && html`<button type="button" onClick=${() => setParams({ cursor: nextCursor }, { push: true })}>Older</button>`}
        </nav>
      `}
    <//>
    ${opened && html`<${EntryDialog} entry=${opened} onClose=${() => setParams({ entry: "" })} />`}
  `;
}

const isoOf = (text) => (Number.isNaN(Date.parse(text)) ? "" : new Date(text).toISOString());

const FilterInput = ({ label, value, onValue, type = "text", placeholder }) => html`
  <label class="filter"><span class=${type === "text" ? "visually-hidden" : ""}>${label}</span>
    <input type=${type} value=${value} placeholder=${placeholder} onChange=${(event) => onValue(event.currentTarget.value.trim())} autocomplete="off" spellcheck=${false} />
  </label>
`;

function EntryTable({ rows, onOpen }) {
  const columns = [
    { key: "at", label: "When", render: ({ at }) => html`<${Time} value=${at} isExact />` },
    { key: "subject", label: "Subject", render: ({ subject }) => subject ?? "–" },
    { key: "action", label: "Action", className: "wrap", render: ({ id, action }) => html`<button type="button" class="link" onClick=${() => onOpen(id)}>${action}</button>` },
    { key: "object", label: "Object", className: "wrap", render: ({ object }) => objectText(object) },
    { key: "status", label: "Status", align: "end", render: ({ status, denied }) => (denied ? html`<${Badge} kind="bad">${status} denied<//>` : status) },
    { key: "address", label: "Address" },
  ];
  return html`<${DataTable} caption="Audit log" columns=${columns} rows=${rows} rowKey=${({ id }) => id} />`;
}

const objectText = (object) => Object.values(object ?? {}).filter((value) => typeof value !== "object").join(", ");

function EntryDialog({ entry, onClose }) {
  const { before, after, object, requestId, ...fields } = entry;
  const { at, subject, status, address } = fields;
  return html`
    <${Dialog} title=${entry.action} onClose=${onClose} className="wide">
      <div class="stacked">
        <p><${Time} value=${at} isExact /> by <b>${subject ?? "an unknown caller"}</b> from ${address}, status ${status}${requestId ? `, request ${requestId}` : ""}</p>
        <h3>Changed</h3>
        <${Difference} before=${before} after=${after} />
        <details><summary>Whole entry</summary><${JsonView} value=${entry} label="Audit entry" /></details>
      </div>
    <//>
  `;
}

/** Save all entries that match the filter as a file. */
async function download(filter) {
  const url = URL.createObjectURL(await exportAuditEntries(filter));
  const link = Object.assign(document.createElement("a"), { href: url, download: "audit.jsonl" });
  link.click();
  URL.revokeObjectURL(url);
}
