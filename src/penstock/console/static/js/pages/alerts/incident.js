// One incident: what fired, why, what happened since, and what the user can do.

import { acknowledgeIncident, addIncidentNote, fetchIncident } from "../../api/alerts.js";
import { ActionButton } from "../../components/action_button.js";
import { DataTable } from "../../components/data_table.js";
import { Page, Section } from "../../components/page.js";
import { Stat, Stats } from "../../components/stat.js";
import { DataState } from "../../components/states.js";
import { Time, useNow } from "../../components/time.js";
import { formatDuration } from "../../format.js";
import { html, useState } from "../../html.js";
import { urlOf } from "../../location.js";
import { useSession } from "../../session.js";
import { useData } from "../../use_data.js";
import { Cause } from "./cause.js";
import { IncidentChart } from "./incident_chart.js";
import { duration } from "./incidents.js";
import { SilenceDialog } from "./silence_dialog.js";
import { Timeline } from "./timeline.js";
import { SeverityBadge, StateBadge } from "./wording.js";

const REFRESH_MS = 10_000;

export function IncidentPage({ id }) {
  const { can } = useSession();
  const state = useData((signal) => fetchIncident(id, signal), [id], { intervalMs: REFRESH_MS });
  const actions = html`
    ${state.data && can("operate") && html`<${IncidentActions} incident=${state.data} refresh=${state.refresh} />`}
    <a class="button" href="/console/alerts">All incidents</a>
  `;
  return html`
    <${Page} title=${state.data?.rule ?? "Incident"} subtitle=${state.data && html`<${Subtitle} incident=${state.data} />`} actions=${actions} className="alerts">
      <${DataState} state=${state}>${(incident) => html`<${IncidentContent} incident=${incident} refresh=${state.refresh} />`}<//>
    <//>
  `;
}

const Subtitle = ({ incident: { state, severity, ruleType, silenced } }) => html`
  <${StateBadge} state=${state} /> <${SeverityBadge} severity=${severity} /> ${ruleType}${silenced ? ", silenced" : ""}
`;

function IncidentActions({ incident, refresh }) {
  const { name } = useSession();
  const [isSilencing, setSilencing] = useState(false);
  const acknowledge = async () => {
    await acknowledgeIncident(incident.id, name);
    refresh();
    return "The incident is acknowledged. Repeated notices stop.";
  };
  const silence = { rule: incident.rule, queue: incident.queueCount === 1 ? incident.queues[0].queue : "" };
  return html`
    ${incident.state === "open" && html`<${ActionButton} action=${acknowledge} className="primary">Acknowledge<//>`}
    ${incident.state !== "resolved" && html`<button type="button" onClick=${() => setSilencing(true)}>Silence</button>`}
    ${isSilencing && html`<${SilenceDialog} silence=${silence} onClose=${() => setSilencing(false)} onSaved=${refresh} />`}
  `;
}

function IncidentContent({ incident, refresh }) {
  const now = useNow(REFRESH_MS);
  const { can } = useSession();
  return html`
    <div class="incident">
      <${Section}>
        <${Stats}>
          <${Stat} label="Opened" value=${html`<${Time} value=${incident.openedAt} />`} />
          <${Stat} label=${incident.resolvedAt ? "Lasted" : "Lasts"} value=${formatDuration(duration(incident, now))} />
          <${Stat} label="Queues" value=${incident.queueCount} detail=${`${incident.firingCount} firing`} />
          <${Stat} label="Acknowledged" value=${incident.acknowledgedBy ?? "no"} detail=${incident.acknowledgedAt && html`<${Time} value=${incident.acknowledgedAt} />`} />
          <${Stat} label="Resolved" value=${html`<${Time} value=${incident.resolvedAt} missing="no" />`} detail=${incident.resolution} />
        <//>
        ${incident.inhibitedBy && html`<p class="hint">No notices were sent: <a href=${urlOf("/console/alerts", { incident: incident.inhibitedBy })}>an incident of the platform</a> explains it.</p>`}
        ${incident.ruleDefinition.runbook && html`<p><a href=${incident.ruleDefinition.runbook} rel="noreferrer" target="_blank">Runbook</a></p>`}
      <//>
      <${IncidentChart} incident=${incident} />
      <${Cause} cause=${incident.cause} />
      <${Section} title="Queues"><${QueueTable} queues=${incident.queues} /><//>
      <${Section} title="Timeline">
        <${Timeline} incident=${incident} />
        ${can("operate") && html`<${NoteForm} incident=${incident} refresh=${refresh} />`}
      <//>
    </div>
  `;
}

function QueueTable({ queues }) {
  const columns = [
    { key: "queue", label: "Queue", render: ({ queue }) => (queue ? html`<a href="/console/queues/${encodeURIComponent(queue)}">${queue}</a>` : "the environment") },
    { key: "summary", label: "What", className: "wrap" },
    { key: "firedAt", label: "Fired", render: ({ firedAt }) => html`<${Time} value=${firedAt} />` },
    { key: "resolvedAt", label: "Resolved", render: ({ resolvedAt }) => html`<${Time} value=${resolvedAt} missing="firing" />` },
  ];
  return html`<${DataTable} caption="Queues of the incident" columns=${columns} rows=${queues} rowKey=${({ queue }) => queue} />`;
}

function NoteForm({ incident, refresh }) {
  const { name } = useSession();
  const [text, setText] = useState("");
  const save = async () => {
    await addIncidentNote(incident.id, { text, author: name });
    setText("");
    refresh();
  };
  return html`
    <form class="note-form" onSubmit=${(event) => event.preventDefault()}>
      <label class="field"><span>Note</span><textarea value=${text} onInput=${(event) => setText(event.currentTarget.value)}></textarea></label>
      <${ActionButton} action=${save} disabled=${text.trim() === ""}>Add note<//>
    </form>
  `;
}
