// Words and colours for states, severities, values and conditions of alerts.

import { Badge } from "../../components/badge.js";
import { formatCount, formatDuration, formatPercent } from "../../format.js";
import { html } from "../../html.js";

export const SEVERITIES = ["info", "warning", "critical"];
const SEVERITY_KINDS = { critical: "bad", warning: "warn", info: "info" };
const STATE_KINDS = {
  ...{ open: "bad", acknowledged: "warn", resolved: "ok" },
  ...{ pending: "info", sent: "ok", failed: "bad" },
  ...{ active: "warn", scheduled: "info", ended: "" },
};

export const SeverityBadge = ({ severity }) => html`<${Badge} kind=${SEVERITY_KINDS[severity] ?? ""}>${severity}<//>`;
export const StateBadge = ({ state }) => html`<${Badge} kind=${STATE_KINDS[state] ?? ""}>${state}<//>`;

const FORMATS = {
  ms: formatDuration,
  share: formatPercent,
  flag: (value) => (value ? "yes" : "no"),
  "burn rate": (value) => String(+value.toFixed(2)),
};

/** Return a value of a rule as text, by the unit of its type. */
export const formatValue = (value, unit) =>
  value === null || value === undefined ? "–" : (FORMATS[unit] ?? formatCount)(value);

/** Return the condition of a rule in a few words, such as “min > 1,000 for 5 min”. `type` is its description. */
export function describeCondition(rule, type) {
  const minutes = rule.windowMinutes ?? type.windowMinutes;
  if (rule.type === "SLO") return `${formatPercent(rule.objective)} within ${formatDuration(rule.withinSeconds * 1_000)}`;
  if (type.unit === "flag") return `${rule.form ?? "either"} for ${minutes} min`;
  const operator = (rule.operator ?? type.operators[0]) === "LESS_THAN" ? "<" : ">";
  const threshold = formatValue(rule.threshold ?? type.threshold, type.unit);
  const condition = [rule.statistic ?? rule.measure ?? "", operator, threshold].filter(Boolean).join(" ");
  return type.isOfEnvironment || rule.type === "EXPIRES_SOON" ? condition : `${condition} for ${minutes} min`;
}

/** Return which queues something concerns. */
export const describeQueues = (queue) => (queue ? queue : "all queues");
