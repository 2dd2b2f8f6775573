// The tokens of the environment. A secret is shown once, right after it was created.

import { fetchTokens, revokeToken, rotateToken } from "../../api/access.js";
import { ActionButton } from "../../components/action_button.js";
import { Badge } from "../../components/badge.js";
import { DataTable } from "../../components/data_table.js";
import { confirm } from "../../components/dialog.js";
import { CheckboxField } from "../../components/form.js";
import { Section } from "../../components/page.js";
import { DataState, Empty } from "../../components/states.js";
import { pageWindow, StepPager } from "../../components/step_pager.js";
import { Time } from "../../components/time.js";
import { html, useState } from "../../html.js";
import { useQueryParams } from "../../location.js";
import { useData } from "../../use_data.js";
import { NewSecret } from "./new_secret.js";
import { TokenDialog } from "./token_dialog.js";

const PAGE_SIZE = 100;
const OVERLAP_S = 86_400;

export function TokensTab() {
  const [{ revoked = "", page: pageText = "1" }, setParams] = useQueryParams();
  const [issued, setIssued] = useState(null);
  const [isCreating, setCreating] = useState(false);
  const { page, offset, limit } = pageWindow(pageText, PAGE_SIZE);
  const state = useData((signal) => fetchTokens({ revoked, offset, limit }, signal), [revoked, page]);
  const onIssued = (token) => {
    setIssued(token);
    state.refresh();
  };
  return html`
    <div class="tools">
      <button type="button" class="primary" onClick=${() => setCreating(true)}>New token</button>
      <${CheckboxField} label="Revoked tokens too" checked=${revoked === "true"} onValue=${(value) => setParams({ revoked: value ? "true" : "", page: "" })} />
    </div>
    ${issued && html`<${NewSecret} token=${issued} onClose=${() => setIssued(null)} />`}
    <${DataState} state=${state}>
      ${({ tokens }) => html`
        <${Section}>
          ${tokens.length === 0
            ? html`<${Empty} title="There are no tokens."><p>Give every program a token of its own, with the scopes that it needs.</p><//>`
            : html`<${TokenTable} rows=${tokens.slice(0, PAGE_SIZE)} onIssued=${onIssued} refresh=${state.refresh} />`}
        <//>
        <${StepPager} page=${page} hasNext=${tokens.length > PAGE_SIZE} onPage=${(number) => setParams({ page: number > 1 ? number : "" })} />
      `}
    <//>
    ${isCreating && html`<${TokenDialog} onClose=${() => setCreating(false)} onIssued=${onIssued} />`}
  `;
}

function TokenTable({ rows, onIssued, refresh }) {
  const columns = [
    { key: "name", label: "Token", render: (token) => html`${token.name} <${TokenBadges} token=${token} />` },
    { key: "scopes", label: "May", className: "wrap", render: rightsText },
    { key: "prefix", label: "Secret", render: ({ secrets }) => html`<code>${secrets.map(({ prefix }) => `${prefix}…`).join(" ")}</code>` },
    { key: "lastUsedAt", label: "Last used", render: ({ lastUsedAt }) => html`<${Time} value=${lastUsedAt} missing="never" />` },
    { key: "expiresAt", label: "Expires", render: ({ expiresAt }) => html`<${Time} value=${expiresAt} missing="never" />` },
    { key: "createdAt", label: "Created", render: ({ createdAt, createdBy }) => html`<${Time} value=${createdAt} /> <small>by ${createdBy}</small>` },
    { key: "actions", label: "Actions", isLabelHidden: true, align: "end", render: (token) => token.changeable && token.state !== "revoked" && html`<${TokenActions} token=${token} onIssued=${onIssued} refresh=${refresh} />` },
  ];
  return html`<${DataTable} caption="Tokens" columns=${columns} rows=${rows} rowKey=${({ id }) => id} />`;
}

const TokenBadges = ({ token: { state, platformAdmin } }) => html`
  ${platformAdmin && html`<${Badge} kind="warn">platform administrator<//>`}
  ${state !== "active" && html`<${Badge}>${state}<//>`}
`;

/** Return what a token may do: “read, produce; only queues orders-*”. */
export function rightsText({ scopes, queues, groups }) {
  const limits = [queues && `only queues ${queues.join(", ")}`, groups && `only groups ${groups.join(", ")}`];
  return [scopes.join(", "), ...limits.filter(Boolean)].join("; ");
}

function TokenActions({ token, onIssued, refresh }) {
  const rotate = async () => {
    const text = "The token gets a new secret. The previous one works for another 24 hours, so that clients can change over.";
    if (!(await confirm({ title: `Rotate ${token.name}?`, text, action: "Rotate" }))) return;
    onIssued(await rotateToken(token.id, OVERLAP_S));
  };
  const revoke = async () => {
    const text = "Every broker refuses it within two seconds. Its leases end. This cannot be undone.";
    if (!(await confirm({ title: `Revoke ${token.name}?`, text, action: "Revoke", isDangerous: true }))) return undefined;
    await revokeToken(token.id);
    refresh();
    return `The token ${token.name} is revoked.`;
  };
  return html`
    <span class="row-actions">
      <${ActionButton} action=${rotate}>Rotate<//>
      <${ActionButton} action=${revoke} className="danger">Revoke<//>
    </span>
  `;
}
