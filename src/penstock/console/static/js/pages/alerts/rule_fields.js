// The fields of the form of a rule. Only those that the type uses are shown.

import { CheckboxField, SelectField, TextAreaField, TextField } from "../../components/form.js";
import { html } from "../../html.js";
import { defaultText, usesField } from "./rule_form.js";
import { SEVERITIES } from "./wording.js";

const UNIT_HINTS = {
  messages: "messages",
  ms: "milliseconds, or a time such as 30s, 5m, 2h",
  share: "a share from 0 to 1",
  "error groups": "error groups",
  "burn rate": "how many times faster than the budget allows",
};
const OPERATORS = { GREATER_THAN: "more than", LESS_THAN: "less than" };

export function RuleFields({ form, setForm, types, type, channels, problemField }) {
  const set = (field) => (value) => setForm({ ...form, [field]: value });
  const uses = (field) => usesField(type, field);
  const text = (field, label, hint) =>
    uses(field) &&
    html`<${TextField} label=${label} hint=${hint} value=${form[field]} onValue=${set(field)} placeholder=${defaultText(field, type)} aria-invalid=${problemField === field} />`;
  const select = (field, label, options, hint) =>
    uses(field) && html`<${SelectField} label=${label} hint=${hint} value=${form[field]} options=${options} onValue=${set(field)} />`;
  const toggleChannel = (name) => (isSelected) =>
    setForm({ ...form, channels: isSelected ? [...form.channels, name] : form.channels.filter((channel) => channel !== name) });

  return html`
    <div class="stacked">
      <div class="fields">
        ${text("name", "Name")}
        ${select("type", "Type", Object.keys(types).map((name) => [name, name]), type.help)}
        ${select("severity", "Severity", SEVERITIES.map((name) => [name, name]))}
        ${text("queue", "Queues", "A name, or a pattern with * and ?. Empty: all queues, new ones too.")}
        ${text("group", "Consumer group", "Empty: a queue counts as a whole.")}
      </div>
      <div class="fields">
        ${select("statistic", "Statistic", [["", "default"], ...type.statistics.map((name) => [name, name])])}
        ${select("measure", "Measure", [["", "growth: that came in the window"], ["count", "count: that exist"]])}
        ${select("form", "Form", [["", "either"], ["waiting", "waiting: nothing starts"], ["running", "running: nothing completes"]])}
        ${select("operator", "Fires when the value is", [["", "more than"], ...type.operators.slice(1).map((name) => [name, OPERATORS[name]])])}
        ${text("threshold", "Threshold", UNIT_HINTS[type.unit])}
        ${text("objective", "Objective", "The share of work that starts in time, such as 0.95.")}
        ${text("withinSeconds", "In time means within, in seconds")}
        ${text("withinHours", "Expires within, in hours")}
        ${text("windowMinutes", "Window, in minutes", "How far back each evaluation looks.")}
      </div>
      <fieldset class="choices">
        <legend>Channels</legend>
        ${channels.map(({ name, kind }) => html`<${CheckboxField} key=${name} label=${name} hint=${kind} checked=${form.channels.includes(name)} onValue=${toggleChannel(name)} />`)}
        ${channels.length === 0 && html`<p class="hint">There are no channels. Incidents of this rule send no notices.</p>`}
      </fieldset>
      <details>
        <summary>More</summary>
        <div class="stacked">
          <div class="fields">
            ${text("clearThreshold", "Resolves past")}
            ${text("forMinutes", "Fires after, in minutes")}
            ${text("keepFiringForMinutes", "Resolves after, in minutes")}
            ${text("cooldownMinutes", "Time between notices, in minutes")}
            ${text("repeatMinutes", "Repeat notices, in minutes")}
            ${text("minSamples", "Least samples")}
            ${text("minObservedPoints", "Least observed points")}
            ${text("labels", "Labels", "team=payments, tier=1")}
            ${text("runbook", "Runbook", "A link that notices have.")}
          </div>
          <${TextAreaField} label="Description" value=${form.description} onValue=${set("description")} />
        </div>
      </details>
      <${CheckboxField} label="On" hint="A rule that is off is not evaluated." checked=${form.enabled} onValue=${set("enabled")} />
    </div>
  `;
}
