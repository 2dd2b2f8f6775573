// Alerts: incidents, rules, deliveries, silences and channels.

import { Page } from "../components/page.js";
import { Tabs, useTab } from "../components/tabs.js";
import { html } from "../html.js";
import { useQueryParam } from "../location.js";
import { ChannelsTab } from "./alerts/channels.js";
import { DeliveriesTab } from "./alerts/deliveries.js";
import { IncidentPage } from "./alerts/incident.js";
import { IncidentsTab } from "./alerts/incidents.js";
import { RulePage } from "./alerts/rule_page.js";
import { RulesTab } from "./alerts/rules.js";
import { SilencesTab } from "./alerts/silences.js";

const TABS = [
  { key: "incidents", label: "Incidents", Content: IncidentsTab },
  { key: "rules", label: "Rules", Content: RulesTab },
  { key: "deliveries", label: "Deliveries", Content: DeliveriesTab },
  { key: "silences", label: "Silences", Content: SilencesTab },
  { key: "channels", label: "Channels", Content: ChannelsTab },
];

export default function AlertsPage() {
  const selected = useTab(TABS);
  const [incidentId] = useQueryParam("incident");
  const [ruleId] = useQueryParam("rule");
  if (selected === "incidents" && incidentId) return html`<${IncidentPage} key=${incidentId} id=${incidentId} />`;
  if (selected === "rules" && ruleId) return html`<${RulePage} key=${ruleId} id=${ruleId} />`;
  const { Content } = TABS.find(({ key }) => key === selected);
  return html`
    <${Page} title="Alerts" className="alerts">
      <${Tabs} label="Alerts" tabs=${TABS} />
      <${Content} />
    <//>
  `;
}
