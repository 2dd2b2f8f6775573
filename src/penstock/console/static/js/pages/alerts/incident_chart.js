// The values of a rule around an incident, from the same replay that a backtest does.

import { testRule } from "../../api/alerts.js";
import { Section } from "../../components/page.js";
import { Loading, NoData, Unavailable } from "../../components/states.js";
import { html } from "../../html.js";
import { useData } from "../../use_data.js";
import { RuleChart } from "./rule_chart.js";

const NO_HISTORY = 422;

export function IncidentChart({ incident }) {
  const { id, ruleDefinition, resolvedAt, openedAt } = incident;
  const { data, problem } = useData((signal) => testRule({ rule: ruleDefinition, incidentId: id }, signal), [id, resolvedAt]);
  return html`
    <${Section} title="What the rule measured">
      ${problem ? html`<${Missing} problem=${problem} />` : data ? html`<${RuleChart} test=${data} marks=${[{ atMs: Date.parse(openedAt), color: "--bad" }]} />` : html`<${Loading} />`}
      ${data?.replay && html`<p class="hint">The vertical line is the opening. A replay with one evaluation per minute ${data.replay.sentence}.</p>`}
    <//>
  `;
}

const Missing = ({ problem }) =>
  problem.status === NO_HISTORY ? html`<${NoData}>${problem.message}<//>` : html`<${Unavailable} problem=${problem} />`;
