// The channels that notices go to. Each can be tested with one attempt.

import { createChannel, deleteChannel, fetchChannels, fetchNotice, replaceChannel, sendTestNotice } from "../../api/alerts.js";
import { ActionButton } from "../../components/action_button.js";
import { Badge } from "../../components/badge.js";
import { DataTable } from "../../components/data_table.js";
import { confirm } from "../../components/dialog.js";
import { CheckboxField, SelectField, TextField } from "../../components/form.js";
import { FormDialog } from "../../components/form_dialog.js";
import { Section } from "../../components/page.js";
import { DataState, Empty } from "../../components/states.js";
import { Time } from "../../components/time.js";
import { showToast } from "../../components/toast.js";
import { html, useState } from "../../html.js";
import { useSession } from "../../session.js";
import { useData } from "../../use_data.js";
import { channelFormOf, channelOf, KIND_FIELDS, KINDS } from "./channel_form.js";

const POLL_MS = 500;
const TEST_TIMEOUT_MS = 30_000;

export function ChannelsTab() {
  const { can } = useSession();
  const [edited, setEdited] = useState(null);
  const state = useData(fetchChannels);
  return html`
    ${can("configure") && html`<div class="tools"><button type="button" class="primary" onClick=${() => setEdited({})}>New channel</button></div>`}
    <${DataState} state=${state}>
      ${({ channels }) => html`
        <${Section}>
          ${channels.length === 0
            ? html`<${Empty} title="There are no channels."><p>A channel is a place that notices go to: a webhook, Slack, Teams, e-mail, PagerDuty or Alertmanager.</p><//>`
            : html`<${ChannelTable} rows=${channels} refresh=${state.refresh} onEdit=${setEdited} />`}
        <//>
      `}
    <//>
    ${edited && html`<${ChannelDialog} channel=${edited.name ? edited : undefined} onClose=${() => setEdited(null)} onSaved=${state.refresh} />`}
  `;
}

function ChannelTable({ rows, refresh, onEdit }) {
  const { can } = useSession();
  const columns = [
    { key: "name", label: "Channel", render: ({ name, enabled }) => html`${name} ${!enabled && html`<${Badge}>off<//>`}` },
    { key: "kind", label: "Kind" },
    { key: "target", label: "Sends to", className: "wrap" },
    { key: "secretFields", label: "Secrets", render: ({ secretFields }) => secretFields.join(", ") },
    { key: "updatedAt", label: "Changed", render: ({ updatedAt }) => html`<${Time} value=${updatedAt} />` },
  ];
  if (can("operate") || can("configure")) {
    columns.push({ key: "actions", label: "Actions", isLabelHidden: true, align: "end", render: (channel) => html`<${ChannelActions} channel=${channel} refresh=${refresh} onEdit=${onEdit} />` });
  }
  return html`<${DataTable} caption="Channels" columns=${columns} rows=${rows} rowKey=${({ id }) => id} />`;
}

function ChannelActions({ channel, refresh, onEdit }) {
  const { can } = useSession();
  const remove = async () => {
    const text = "Its notices are deleted too. A channel that a rule uses cannot be deleted.";
    if (!(await confirm({ title: `Delete the channel ${channel.name}?`, text, action: "Delete", isDangerous: true }))) return undefined;
    await deleteChannel(channel.name);
    refresh();
    return `The channel ${channel.name} was deleted.`;
  };
  return html`
    <span class="row-actions">
      ${can("operate") && html`<${ActionButton} action=${() => sendTest(channel.name)}>Send test<//>`}
      ${can("configure") && html`<button type="button" onClick=${() => onEdit(channel)}>Edit</button><${ActionButton} action=${remove} className="danger">Delete<//>`}
    </span>
  `;
}

/** Send a test notice and wait for the result of its one attempt. */
async function sendTest(name) {
  let notice = await sendTestNotice(name);
  const deadline = Date.now() + TEST_TIMEOUT_MS;
  while (notice.state === "pending" && Date.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    notice = await fetchNotice(notice.id);
  }
  if (notice.state === "sent") return `The test notice arrived at ${name}.`;
  const reason = notice.state === "failed" ? notice.lastError : "It was not sent yet. Check that the component alerts runs.";
  showToast(`The test notice did not arrive. ${reason}`, { kind: "problem" });
  return undefined;
}

function ChannelDialog({ channel, onClose, onSaved }) {
  const [form, setForm] = useState(() => channelFormOf(channel));
  const set = (field) => (value) => setForm({ ...form, [field]: value });
  const save = async () => {
    const body = channelOf(form);
    await (channel ? replaceChannel(channel.name, body) : createChannel(body));
    onSaved();
    return `The channel ${form.name} is saved. Send a test notice to check it.`;
  };
  return html`
    <${FormDialog} title=${channel ? `Channel ${channel.name}` : "New channel"} action="Save" save=${save} onClose=${onClose}>
      <div class="fields">
        <${TextField} label="Name" value=${form.name} onValue=${set("name")} required readonly=${Boolean(channel)} />
        <${SelectField} label="Kind" value=${form.kind} options=${KINDS.map((kind) => [kind, kind])} onValue=${set("kind")} disabled=${Boolean(channel)} />
      </div>
      <div class="fields">
        ${KIND_FIELDS[form.kind].map((field) => html`<${ChannelField} key=${field.key} field=${field} value=${form[field.key] ?? ""} onValue=${set(field.key)} isSet=${channel?.secretFields.includes(field.key)} />`)}
      </div>
      <${CheckboxField} label="On" hint="A channel that is off gets no notices." checked=${form.enabled} onValue=${set("enabled")} />
    <//>
  `;
}

function ChannelField({ field: { label, hint, isSecret, options }, value, onValue, isSet }) {
  if (options) return html`<${SelectField} label=${label} value=${value || options[0]} options=${options.map((option) => [option, option])} onValue=${onValue} />`;
  return html`<${TextField} label=${label} hint=${hint} type=${isSecret ? "password" : "text"} placeholder=${isSet ? "stored; empty keeps it" : ""} value=${value} onValue=${onValue} />`;
}
