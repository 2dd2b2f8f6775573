// One rule: its form, or what it says for users who may not change it, and its backtest.

import { createRule, fetchChannels, fetchRule, fetchRuleTypes, replaceRule } from "../../api/alerts.js";
import { useAction } from "../../components/action_button.js";
import { JsonView } from "../../components/json_view.js";
import { Page, Section } from "../../components/page.js";
import { DataState } from "../../components/states.js";
import { showToast } from "../../components/toast.js";
import { html, useState } from "../../html.js";
import { navigate, urlOf } from "../../location.js";
import { useSession } from "../../session.js";
import { useData } from "../../use_data.js";
import { Backtest } from "./backtest.js";
import { RuleFields } from "./rule_fields.js";
import { formOf, ruleOf } from "./rule_form.js";
import { definitionOf, States } from "./rules.js";

const NEW = "new";
const RULES_URL = urlOf("/console/alerts", { tab: "rules" });

export function RulePage({ id }) {
  const { can } = useSession();
  const state = useData((signal) => fetchRuleForm(id, signal), [id]);
  const title = id === NEW ? "New rule" : (state.data?.rule.name ?? "Rule");
  return html`
    <${Page} title=${title} className="alerts" actions=${html`<a class="button" href=${RULES_URL}>All rules</a>`}>
      <${DataState} state=${state}>
        ${(data) => (can("configure") ? html`<${RuleEditor} id=${id} ...${data} />` : html`<${RuleView} ...${data} />`)}
      <//>
    <//>
  `;
}

async function fetchRuleForm(id, signal) {
  const [{ types }, { channels }, rule] = await Promise.all([
    fetchRuleTypes(signal),
    fetchChannels(signal),
    id === NEW ? { name: "", type: "BACKLOG", enabled: true } : fetchRule(id, signal),
  ]);
  return { types: Object.fromEntries(types.map((type) => [type.type, type])), channels, rule };
}

function RuleEditor({ id, rule, types, channels }) {
  const [form, setForm] = useState(() => formOf(rule, types[rule.type]));
  const [problem, setProblem] = useState(null);
  const type = types[form.type];
  const [isBusy, save] = useAction(async () => {
    setProblem(null);
    try {
      const body = ruleOf(form, type);
      await (id === NEW ? createRule(body) : replaceRule(id, body));
    } catch (error) {
      setProblem(error);
      return;
    }
    showToast(`The rule ${form.name} was saved.`);
    navigate(RULES_URL);
  });
  const submit = (event) => {
    event.preventDefault();
    save();
  };
  return html`
    <form class="rule-editor" onSubmit=${submit}>
      <${Section} title="Rule">
        <${RuleFields} form=${form} setForm=${setForm} types=${types} type=${type} channels=${channels} problemField=${problem?.fields?.field} />
        ${problem && html`<p class="problem" role="alert">${problem.message}</p>`}
        <footer class="form-actions">
          <a class="button" href=${RULES_URL}>Cancel</a>
          <button type="submit" class="primary" disabled=${isBusy}>Save</button>
        </footer>
      <//>
    </form>
    <${Backtest} readRule=${() => ({ ...ruleOf(form, type), name: form.name || NEW })} canBeTested=${isTestable(type, form)} onThreshold=${(value) => setForm({ ...form, threshold: formOf({ threshold: value }, type).threshold })} />
  `;
}

const isTestable = (type, { measure }) => type.canBeTested && measure !== "count";

function RuleView({ rule, types }) {
  return html`
    <${Section} title="Rule">
      <p><${States} rule=${rule} /></p>
      <${JsonView} value=${definitionOf(rule)} label="Rule" />
    <//>
    <${Backtest} readRule=${() => definitionOf(rule)} canBeTested=${isTestable(types[rule.type], rule)} />
  `;
}
