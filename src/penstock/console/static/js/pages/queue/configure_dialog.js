// The dialogs that set the options of a durable queue and the limit of a run queue.

import { configureQueue, setLimit } from "../../api/queue.js";
import { useAction } from "../../components/action_button.js";
import { Dialog } from "../../components/dialog.js";
import { CheckboxField, TextAreaField, TextField } from "../../components/form.js";
import { html, useState } from "../../html.js";
import { changedOptions, OPTION_GROUPS } from "./options.js";

export function ConfigureDialog({ queue, onClose, onChange }) {
  const [values, setValues] = useState(queue.options);
  const [labels, setLabels] = useState({ namespace: queue.namespace, task: queue.task });
  const changes = changedOptions(queue.options, values);
  const changedLabels = Object.fromEntries(Object.entries(labels).filter(([name, value]) => value !== queue[name]));
  const hasChanged = Object.keys(changes).length + Object.keys(changedLabels).length > 0;
  const [isBusy, save] = useAction(async () => {
    await configureQueue(queue.name, { options: changes, ...changedLabels });
    onChange();
    onClose();
    return `The options of ${queue.name} are set.`;
  });
  const submit = (event) => {
    event.preventDefault();
    save();
  };
  const setValue = (name) => (value) => setValues((previous) => ({ ...previous, [name]: value }));
  return html`
    <${Dialog} title="Configure ${queue.name}" className="wide" onClose=${onClose}>
      <form class="stacked" onSubmit=${submit}>
        <div class="fields">
          <${TextField} label="Namespace" value=${labels.namespace} onValue=${(namespace) => setLabels({ ...labels, namespace })} />
          <${TextField} label="Task" value=${labels.task} onValue=${(task) => setLabels({ ...labels, task })} />
        </div>
        ${OPTION_GROUPS.map(({ title, options }) => html`
          <fieldset key=${title} class="option-group">
            <legend>${title}</legend>
            <div class="fields">
              ${options.map((option) => html`<${OptionField} key=${option.name} option=${option} value=${values[option.name]} onValue=${setValue(option.name)} />`)}
            </div>
          </fieldset>
        `)}
        <footer class="dialog-actions">
          <button type="button" onClick=${onClose}>Cancel</button>
          <button type="submit" class="primary" disabled=${isBusy || !hasChanged}>Save</button>
        </footer>
      </form>
    <//>
  `;
}

function OptionField({ option: { name, label, unit, hint }, value, onValue }) {
  if (typeof value === "boolean") return html`<${CheckboxField} label=${label} hint=${hint} checked=${value} onValue=${onValue} />`;
  if (Array.isArray(value)) return html`<${LinesField} label=${label} hint=${hint} value=${value} onValue=${onValue} />`;
  const change = (text) => onValue(text === "" ? "" : Number(text));
  return html`<${TextField} label=${unit ? `${label} (${unit})` : label} hint=${hint} name=${name} type="number" step="any" required value=${value} onValue=${change} />`;
}

/** A list of texts, one per line. */
function LinesField({ label, hint, value, onValue }) {
  const [text, setText] = useState(value.join("\n"));
  const change = (newText) => {
    setText(newText);
    onValue(newText.split("\n").map((line) => line.trim()).filter(Boolean));
  };
  return html`<${TextAreaField} label=${label} hint=${hint} rows="3" value=${text} onValue=${change} />`;
}

export function LimitDialog({ queue, onClose, onChange }) {
  const [limit, setLimitText] = useState(queue.concurrency === null ? "" : String(queue.concurrency));
  const [isBusy, save] = useAction(async () => {
    await setLimit(queue.name, limit === "" ? null : Number(limit));
    onChange();
    onClose();
    return limit === "" ? `${queue.name} has no limit of its own.` : `At most ${limit} tasks of ${queue.name} run at once.`;
  });
  const submit = (event) => {
    event.preventDefault();
    save();
  };
  return html`
    <${Dialog} title="Limit of ${queue.name}" onClose=${onClose}>
      <form class="stacked" onSubmit=${submit}>
        <${TextField} label="Tasks that may run at once" type="number" min="1" max="1000000" value=${limit} onValue=${setLimitText} hint="Empty: no limit of its own. It takes effect at once; running tasks continue." />
        <footer class="dialog-actions">
          <button type="button" onClick=${onClose}>Cancel</button>
          <button type="submit" class="primary" disabled=${isBusy}>Save</button>
        </footer>
      </form>
    <//>
  `;
}
