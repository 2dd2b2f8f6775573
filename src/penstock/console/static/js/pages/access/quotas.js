// The quotas of the environment and of the token, and how much of them is used.

import { fetchEnvironment, fetchQuotas } from "../../api/access.js";
import { Badge } from "../../components/badge.js";
import { DataTable } from "../../components/data_table.js";
import { Section } from "../../components/page.js";
import { DataState, Empty } from "../../components/states.js";
import { formatBytes, formatCount, formatPercent } from "../../format.js";
import { html, useState } from "../../html.js";
import { useSession } from "../../session.js";
import { useData } from "../../use_data.js";
import { QuotaDialog } from "./quota_dialog.js";

const REFRESH_MS = 5_000;

export function QuotasTab() {
  const { environment, isPlatformAdministrator, can } = useSession();
  const mayChange = isPlatformAdministrator && can("admin");
  const [edited, setEdited] = useState(null);
  const state = useData(fetchQuotas, [], { intervalMs: REFRESH_MS });
  const edit = async () => setEdited(await fetchEnvironment(environment));
  return html`
    ${mayChange && html`<div class="tools"><button type="button" class="primary" onClick=${edit}>Change the quotas</button></div>`}
    <${DataState} state=${state}>
      ${({ environment: own, token, warnings, kinds }) => html`
        <${Section} title="Environment ${own.name}"><${QuotaTable} quotas=${own.quotas} kinds=${kinds} caption="Quotas of the environment" /><//>
        ${token && html`<${Section} title="Token ${token.name}"><${QuotaTable} quotas=${token.quotas} kinds=${kinds} caption="Quotas of the token" /><//>`}
        <${OtherWarnings} warnings=${warnings.filter((warning) => warning.environment !== own.name)} />
      `}
    <//>
    ${edited && html`<${QuotaDialog} name=${edited.name} quotas=${edited.quotas} onClose=${() => setEdited(null)} onSaved=${state.refresh} />`}
  `;
}

function QuotaTable({ quotas, kinds, caption }) {
  if (quotas.length === 0) return html`<${Empty} title="There are no quotas: nothing is limited." />`;
  const units = Object.fromEntries(kinds.map(({ quota, unit }) => [quota, unit]));
  const format = (quota) => (quota.toLowerCase().includes("bytes") ? formatBytes : formatCount);
  const columns = [
    { key: "quota", label: "Quota", render: ({ quota }) => html`${quota} <small>${units[quota]}</small>` },
    { key: "used", label: "Used", align: "end", render: ({ quota, used }) => format(quota)(used) },
    { key: "limit", label: "Limit", align: "end", render: ({ quota, limit }) => format(quota)(limit) },
    { key: "share", label: "Share", render: (reading) => html`<${Share} ...${reading} />` },
  ];
  return html`<${DataTable} caption=${caption} columns=${columns} rows=${quotas} rowKey=${({ quota }) => quota} />`;
}

function Share({ quota, used, limit, warning }) {
  if (used === null) return html`<span class="muted">not known yet</span>`;
  const share = limit === 0 ? 1 : used / limit;
  return html`
    <span class="share">
      <meter min="0" max="1" high="0.8" optimum="0" value=${Math.min(1, share)} aria-label="Share of ${quota} that is used"></meter>
      ${formatPercent(share)} ${warning && html`<${Badge} kind="warn">nearly used up<//>`}
    </span>
  `;
}

function OtherWarnings({ warnings }) {
  if (warnings.length === 0) return null;
  return html`
    <${Section} title="Nearly used up elsewhere">
      <ul>
        ${warnings.map(({ environment, quota, used, limit }) => html`<li key=${environment + quota}>${environment}: ${quota} ${formatCount(used)} of ${formatCount(limit)}</li>`)}
      </ul>
    <//>
  `;
}
