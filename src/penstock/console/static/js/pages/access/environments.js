// Environments: platform administrators see, create, limit and delete all of them, others see their own.

import { createEnvironment, deleteEnvironment, fetchEnvironments } from "../../api/access.js";
import { ActionButton } from "../../components/action_button.js";
import { Badge } from "../../components/badge.js";
import { DataTable } from "../../components/data_table.js";
import { confirm } from "../../components/dialog.js";
import { TextField } from "../../components/form.js";
import { FormDialog } from "../../components/form_dialog.js";
import { Section } from "../../components/page.js";
import { Pager } from "../../components/pager.js";
import { DataState } from "../../components/states.js";
import { pageWindow } from "../../components/step_pager.js";
import { Time } from "../../components/time.js";
import { formatCount } from "../../format.js";
import { html, useState } from "../../html.js";
import { useQueryParam } from "../../location.js";
import { useSession } from "../../session.js";
import { useData } from "../../use_data.js";
import { QuotaDialog } from "./quota_dialog.js";

const PAGE_SIZE = 100;
const REFRESH_MS = 10_000;
const DEFAULT_ENVIRONMENT = "default/default/default";

export function EnvironmentsTab() {
  const { isPlatformAdministrator, can } = useSession();
  const mayChange = isPlatformAdministrator && can("admin");
  const [pageText, setPage] = useQueryParam("page", "1");
  const [isCreating, setCreating] = useState(false);
  const [limited, setLimited] = useState(null);
  const { page, offset } = pageWindow(pageText, PAGE_SIZE);
  const state = useData((signal) => fetchEnvironments({ offset, limit: PAGE_SIZE }, signal), [page], { intervalMs: REFRESH_MS });
  return html`
    ${mayChange && html`<div class="tools"><button type="button" class="primary" onClick=${() => setCreating(true)}>New environment</button></div>`}
    <${DataState} state=${state}>
      ${({ environments, total }) => html`
        <${Section}><${EnvironmentTable} rows=${environments} mayChange=${mayChange} onLimit=${setLimited} refresh=${state.refresh} /><//>
        <${Pager} page=${page} pageSize=${PAGE_SIZE} total=${total} noun=${total === 1 ? "environment" : "environments"} onPage=${(number) => setPage(String(number))} />
      `}
    <//>
    ${isCreating && html`<${EnvironmentDialog} onClose=${() => setCreating(false)} onSaved=${state.refresh} />`}
    ${limited && html`<${QuotaDialog} name=${limited.name} quotas=${limited.quotas} onClose=${() => setLimited(null)} onSaved=${state.refresh} />`}
  `;
}

function EnvironmentTable({ rows, mayChange, onLimit, refresh }) {
  const columns = [
    { key: "name", label: "Environment", render: ({ name, deletion }) => html`${name} ${deletion && html`<${Badge} kind="warn">being deleted<//>`}` },
    { key: "queues", label: "Queues", align: "end", render: ({ queues }) => formatCount(queues) },
    { key: "quotas", label: "Quotas", className: "wrap", render: ({ quotas }) => quotasText(quotas) },
    { key: "createdAt", label: "Created", render: ({ createdAt }) => html`<${Time} value=${createdAt} />` },
    { key: "deletion", label: "Deletion", className: "wrap", render: ({ deletion }) => (deletion ? [deletion.step, deletion.note].filter(Boolean).join(": ") : "") },
  ];
  if (mayChange) {
    columns.push({ key: "actions", label: "Actions", isLabelHidden: true, align: "end", render: (row) => !row.deletion && html`<${EnvironmentActions} environment=${row} onLimit=${onLimit} refresh=${refresh} />` });
  }
  return html`<${DataTable} caption="Environments" columns=${columns} rows=${rows} rowKey=${({ name }) => name} />`;
}

const quotasText = (quotas) =>
  Object.entries(quotas).filter(([, limit]) => limit !== null).map(([quota, limit]) => `${quota} ${formatCount(limit)}`).join(", ") || "none";

function EnvironmentActions({ environment, onLimit, refresh }) {
  const { name } = environment;
  const remove = async () => {
    const text = "All its queues, messages, tasks, dead letters, alerts, tokens and metrics are deleted. This cannot be undone.";
    if (!(await confirm({ title: `Delete ${name}?`, text, action: "Delete", isDangerous: true, typedText: name }))) return undefined;
    await deleteEnvironment(name);
    refresh();
    return `The environment ${name} is being deleted.`;
  };
  return html`
    <span class="row-actions">
      <button type="button" onClick=${() => onLimit(environment)}>Quotas</button>
      ${name !== DEFAULT_ENVIRONMENT && html`<${ActionButton} action=${remove} className="danger">Delete<//>`}
    </span>
  `;
}

function EnvironmentDialog({ onClose, onSaved }) {
  const [name, setName] = useState("");
  const save = async () => {
    const [organization, project = "", ...rest] = name.trim().split("/");
    await createEnvironment({ organization, project, environment: rest.join("/") });
    onSaved();
    return `The environment ${name.trim()} was created.`;
  };
  return html`
    <${FormDialog} title="New environment" action="Create" save=${save} onClose=${onClose}>
      <${TextField} label="Name" hint="organization/project/environment" placeholder="acme/shop/production" value=${name} onValue=${setName} required />
    <//>
  `;
}
