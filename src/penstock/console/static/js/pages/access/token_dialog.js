// The dialog that creates a token.

import { createToken } from "../../api/access.js";
import { CheckboxField, SelectField, TextField } from "../../components/form.js";
import { FormDialog } from "../../components/form_dialog.js";
import { html, useState } from "../../html.js";
import { useSession } from "../../session.js";

const SCOPES = {
  read: "queues, groups, metrics and dead letters, without payloads",
  "read:payload": "payloads of messages, tasks and dead letters",
  produce: "push messages and enqueue tasks",
  consume: "pop, ack and extend leases; dequeue and report tasks",
  operate: "requeue, purge, pause, move groups, silence alerts",
  configure: "configure and delete queues, alert rules and channels",
  admin: "manage tokens, read the audit log",
};
const EXPIRIES = [["", "never"], ["30", "in 30 days"], ["90", "in 90 days"], ["365", "in a year"]];
const DAY_S = 86_400;

export function TokenDialog({ onClose, onIssued }) {
  const { scopes: ownScopes, isPlatformAdministrator } = useSession();
  const [form, setForm] = useState({ name: "", scopes: [], queues: "", groups: "", days: "", platformAdmin: false });
  const set = (field) => (value) => setForm({ ...form, [field]: value });
  const toggle = (scope) => (isSelected) => set("scopes")(Object.keys(SCOPES).filter((name) => (name === scope ? isSelected : form.scopes.includes(name))));
  return html`
    <${FormDialog} title="New token" action="Create" save=${async () => onIssued(await createToken(tokenOf(form)))} onClose=${onClose}>
      <${TextField} label="Name" value=${form.name} onValue=${set("name")} required />
      <fieldset class="choices">
        <legend>Scopes</legend>
        ${ownScopes.map((scope) => html`<${CheckboxField} key=${scope} label=${scope} hint=${SCOPES[scope]} checked=${form.scopes.includes(scope)} onValue=${toggle(scope)} />`)}
      </fieldset>
      <div class="fields">
        <${TextField} label="Only queues" hint="Names or patterns such as orders-*, separated by commas. Empty: all." value=${form.queues} onValue=${set("queues")} />
        <${TextField} label="Only consumer groups" hint="Empty: all." value=${form.groups} onValue=${set("groups")} />
        <${SelectField} label="Expires" value=${form.days} options=${EXPIRIES} onValue=${set("days")} />
      </div>
      ${isPlatformAdministrator && html`<${CheckboxField} label="Platform administrator" hint="May act in every environment" checked=${form.platformAdmin} onValue=${set("platformAdmin")} />`}
    <//>
  `;
}

/** Return the token that the form describes. */
export function tokenOf({ name, scopes, queues, groups, days, platformAdmin }) {
  const token = { name: name.trim(), scopes, queues: patternsOf(queues), groups: patternsOf(groups), platformAdmin };
  return days ? { ...token, expiresInS: Number(days) * DAY_S } : token;
}

function patternsOf(text) {
  const patterns = text.split(",").map((pattern) => pattern.trim()).filter(Boolean);
  return patterns.length ? patterns : null;
}
