// The list of silences: those that apply now, later, and those that have ended.

import { deleteSilence, fetchSilences } from "../../api/alerts.js";
import { ActionButton } from "../../components/action_button.js";
import { DataTable } from "../../components/data_table.js";
import { confirm } from "../../components/dialog.js";
import { Section } from "../../components/page.js";
import { DataState, Empty } from "../../components/states.js";
import { pageWindow, StepPager } from "../../components/step_pager.js";
import { Time } from "../../components/time.js";
import { formatDateTime } from "../../format.js";
import { html, useState } from "../../html.js";
import { useQueryParam } from "../../location.js";
import { useSession } from "../../session.js";
import { useData } from "../../use_data.js";
import { SilenceDialog } from "./silence_dialog.js";
import { describeTimes } from "./silence_form.js";
import { StateBadge } from "./wording.js";

const PAGE_SIZE = 50;
const REFRESH_MS = 30_000;

export function SilencesTab() {
  const mayOperate = useSession().can("operate");
  const [pageText, setPage] = useQueryParam("page", "1");
  const [edited, setEdited] = useState(null);
  const { page, offset, limit } = pageWindow(pageText, PAGE_SIZE);
  const state = useData((signal) => fetchSilences({ offset, limit }, signal), [page], { intervalMs: REFRESH_MS });
  return html`
    ${mayOperate && html`<div class="tools"><button type="button" class="primary" onClick=${() => setEdited({})}>New silence</button></div>`}
    <${DataState} state=${state}>
      ${({ silences }) => html`
        <${Section}>
          ${silences.length === 0
            ? html`<${Empty} title="There are no silences."><p>During a silence, rules go on and send no notices.</p><//>`
            : html`<${SilenceTable} rows=${silences.slice(0, PAGE_SIZE)} mayOperate=${mayOperate} refresh=${state.refresh} onEdit=${setEdited} />`}
        <//>
        <${StepPager} page=${page} hasNext=${silences.length > PAGE_SIZE} onPage=${(number) => setPage(String(number))} />
      `}
    <//>
    ${edited && html`<${SilenceDialog} silence=${edited} onClose=${() => setEdited(null)} onSaved=${state.refresh} />`}
  `;
}

function SilenceTable({ rows, mayOperate, refresh, onEdit }) {
  const columns = [
    { key: "state", label: "State", render: ({ state }) => html`<${StateBadge} state=${state} />` },
    { key: "scope", label: "Silent", className: "wrap", render: scopeText },
    { key: "times", label: "When", className: "wrap", render: (silence) => describeTimes(silence, formatDateTime) },
    { key: "comment", label: "Comment", className: "wrap" },
    { key: "createdBy", label: "By" },
    { key: "createdAt", label: "Created", render: ({ createdAt }) => html`<${Time} value=${createdAt} />` },
  ];
  if (mayOperate) {
    columns.push({ key: "actions", label: "Actions", isLabelHidden: true, align: "end", render: (silence) => html`<${SilenceActions} silence=${silence} refresh=${refresh} onEdit=${onEdit} />` });
  }
  return html`<${DataTable} caption="Silences" columns=${columns} rows=${rows} rowKey=${({ id }) => id} />`;
}

/** Return what a silence selects: “queue orders*, severity warning”, or everything. */
export function scopeText({ queue, rule, severity, labels = {} }) {
  const parts = Object.entries({ queue, rule, severity }).filter(([, value]) => value).map(([name, value]) => `${name} ${value}`);
  parts.push(...Object.entries(labels).map(([name, value]) => `label ${name}=${value}`));
  return parts.join(", ") || "everything";
}

function SilenceActions({ silence, refresh, onEdit }) {
  const remove = async () => {
    const text = silence.state === "active" ? "What still fires is notified at once." : "It will not apply any more.";
    if (!(await confirm({ title: "Delete the silence?", text, action: "Delete", isDangerous: true }))) return undefined;
    await deleteSilence(silence.id);
    refresh();
    return "The silence was deleted.";
  };
  return html`
    <span class="row-actions">
      <button type="button" onClick=${() => onEdit(silence)}>Edit</button>
      <${ActionButton} action=${remove} className="danger">Delete<//>
    </span>
  `;
}
