// The list of alert rules, with how many queues are in which state.

import { createDefaultRules, deleteRule, fetchChannels, fetchRules, fetchRuleTypes, replaceRule } from "../../api/alerts.js";
import { ActionButton } from "../../components/action_button.js";
import { Badge } from "../../components/badge.js";
import { DataTable } from "../../components/data_table.js";
import { confirm } from "../../components/dialog.js";
import { Section } from "../../components/page.js";
import { DataState, Empty } from "../../components/states.js";
import { formatCount } from "../../format.js";
import { html } from "../../html.js";
import { urlOf } from "../../location.js";
import { useSession } from "../../session.js";
import { useData } from "../../use_data.js";
import { describeCondition, describeQueues, SeverityBadge } from "./wording.js";

const REFRESH_MS = 15_000;
const STATE_KINDS = { firing: "bad", pending: "warn", clearing: "warn", unknown: "info", ok: "ok" };

export const ruleUrl = (id) => urlOf("/console/alerts", { tab: "rules", rule: id });

async function fetchRulesAndTypes(signal) {
  const [{ rules }, { types }, { channels }] = await Promise.all([fetchRules(signal), fetchRuleTypes(signal), fetchChannels(signal)]);
  return { rules, channels, types: Object.fromEntries(types.map((type) => [type.type, type])) };
}

export function RulesTab() {
  const { can } = useSession();
  const state = useData(fetchRulesAndTypes, [], { intervalMs: REFRESH_MS });
  const mayConfigure = can("configure");
  return html`
    ${mayConfigure && html`<div class="tools"><a class="button primary" href=${ruleUrl("new")}>New rule</a></div>`}
    <${DataState} state=${state}>
      ${({ rules, types, channels }) => html`
        <${Section}>
          ${rules.length === 0
            ? html`<${NoRules} channels=${channels} mayConfigure=${mayConfigure} refresh=${state.refresh} />`
            : html`<${RuleTable} rules=${rules} types=${types} mayConfigure=${mayConfigure} refresh=${state.refresh} />`}
        <//>
      `}
    <//>
  `;
}

function NoRules({ channels, mayConfigure, refresh }) {
  const names = channels.map(({ name }) => name);
  const create = async () => {
    const { rules } = await createDefaultRules(names);
    refresh();
    return `${rules.length} rules were created.`;
  };
  const target = names.length ? `Their notices go to ${names.join(", ")}.` : "Their notices go nowhere until you add a channel.";
  return html`
    <${Empty} title="There are no rules.">
      <p>The default rules watch for a growing backlog, old messages, dead letters, stalled queues and metrics that are behind.</p>
      ${mayConfigure && html`<p>${target}</p><p><${ActionButton} action=${create}>Create the default rules<//></p>`}
    <//>
  `;
}

function RuleTable({ rules, types, mayConfigure, refresh }) {
  const columns = [
    { key: "name", label: "Rule", render: ({ id, name }) => html`<a href=${ruleUrl(id)}>${name}</a>` },
    { key: "status", label: "Queues by state", render: (rule) => html`<${States} rule=${rule} />` },
    { key: "severity", label: "Severity", render: ({ severity }) => html`<${SeverityBadge} severity=${severity ?? "warning"} />` },
    { key: "type", label: "Type" },
    { key: "queue", label: "Queues", render: (rule) => (types[rule.type].isOfEnvironment ? "the environment" : describeQueues(rule.queue)) },
    { key: "condition", label: "Fires when", render: (rule) => describeCondition(rule, types[rule.type]) },
    { key: "channels", label: "Channels", render: ({ channels }) => (channels?.length ? channels.join(", ") : html`<span class="muted">none</span>`) },
  ];
  if (mayConfigure) {
    columns.push({ key: "actions", label: "Actions", isLabelHidden: true, align: "end", render: (rule) => html`<${RuleActions} rule=${rule} refresh=${refresh} />` });
  }
  return html`<${DataTable} caption="Alert rules" columns=${columns} rows=${rules} rowKey=${({ id }) => id} />`;
}

/** How many queues are in which state, the worst first. */
export function States({ rule: { enabled, status } }) {
  if (!enabled) return html`<${Badge}>off<//>`;
  if (!status) return html`<span class="muted">not evaluated yet</span>`;
  const states = Object.keys(STATE_KINDS).filter((state) => status[state] > 0);
  return html`<span class="states">
    ${states.map((state) => html`<${Badge} key=${state} kind=${STATE_KINDS[state]} title=${state === "unknown" ? status.unknownReason : ""}>${formatCount(status[state])} ${state}<//>`)}
    ${states.length === 0 && html`<span class="muted">no queues</span>`}
  </span>`;
}

/** Return a rule as it is written, without what the broker adds. */
export function definitionOf({ id, createdAt, updatedAt, status, ...definition }) {
  return definition;
}

function RuleActions({ rule, refresh }) {
  const toggle = async () => {
    await replaceRule(rule.id, { ...definitionOf(rule), enabled: !rule.enabled });
    refresh();
    return `The rule ${rule.name} is ${rule.enabled ? "off" : "on"}.`;
  };
  const remove = async () => {
    const text = "Its open incident is resolved by the next evaluation. Resolved incidents stay.";
    if (!(await confirm({ title: `Delete the rule ${rule.name}?`, text, action: "Delete", isDangerous: true }))) return undefined;
    await deleteRule(rule.id);
    refresh();
    return `The rule ${rule.name} was deleted.`;
  };
  return html`
    <span class="row-actions">
      <${ActionButton} action=${toggle} aria-label="Turn ${rule.enabled ? "off" : "on"} ${rule.name}">Turn ${rule.enabled ? "off" : "on"}<//>
      <${ActionButton} action=${remove} className="danger" aria-label="Delete ${rule.name}">Delete<//>
    </span>
  `;
}
