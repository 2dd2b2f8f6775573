// The dialog that creates or changes a silence.

import { createSilence, replaceSilence } from "../../api/alerts.js";
import { CheckboxField, SelectField, TextField } from "../../components/form.js";
import { FormDialog } from "../../components/form_dialog.js";
import { html, useState } from "../../html.js";
import { useSession } from "../../session.js";
import { DAYS, DURATIONS, silenceFormOf, silenceOf } from "./silence_form.js";
import { SEVERITIES } from "./wording.js";

/** `silence` has the first values of the fields; with an `id`, the silence is replaced. */
export function SilenceDialog({ silence, onClose, onSaved }) {
  const { name } = useSession();
  const [form, setForm] = useState(() => silenceFormOf(silence));
  const set = (field) => (value) => setForm({ ...form, [field]: value });
  const save = async () => {
    const body = { ...silenceOf(form), createdBy: silence.createdBy ?? name };
    await (silence.id ? replaceSilence(silence.id, body) : createSilence(body));
    onSaved();
    return "The silence is saved. Rules go on without notices.";
  };
  return html`
    <${FormDialog} title=${silence.id ? "Change the silence" : "New silence"} action="Save" save=${save} onClose=${onClose}>
      <p class="hint">All fields that are set must match. Without any, everything is silent.</p>
      <div class="fields">
        <${TextField} label="Queues" hint="A name, or a pattern with * and ?" value=${form.queue} onValue=${set("queue")} />
        <${TextField} label="Rule" hint="The name of a rule" value=${form.rule} onValue=${set("rule")} />
        <${SelectField} label="Severity" value=${form.severity} options=${[["", "any"], ...SEVERITIES.map((severity) => [severity, severity])]} onValue=${set("severity")} />
      </div>
      <div class="fields">
        <${TextField} label="Starts" hint="Empty: at once" type="datetime-local" value=${form.startsAt} onValue=${set("startsAt")} />
        <${SelectField} label="Lasts" value=${form.duration} options=${DURATIONS} onValue=${set("duration")} />
        ${form.duration === "until" && html`<${TextField} label="Ends" type="datetime-local" value=${form.endsAt} onValue=${set("endsAt")} />`}
      </div>
      <${CheckboxField} label="Only at some times of the week" checked=${form.recurs} onValue=${set("recurs")} />
      ${form.recurs && html`<${RecurrenceFields} form=${form} set=${set} />`}
      <${TextField} label="Comment" value=${form.comment} onValue=${set("comment")} />
    <//>
  `;
}

function RecurrenceFields({ form, set }) {
  const toggleDay = (day) => (isSelected) => set("days")(DAYS.filter((name) => (name === day ? isSelected : form.days.includes(name))));
  return html`
    <fieldset class="choices">
      <legend>Days on which it starts</legend>
      ${DAYS.map((day) => html`<${CheckboxField} key=${day} label=${day} checked=${form.days.includes(day)} onValue=${toggleDay(day)} />`)}
    </fieldset>
    <div class="fields">
      <${TextField} label="From" type="time" value=${form.from} onValue=${set("from")} />
      <${TextField} label="To" hint="Not after From: on the next day" type="time" value=${form.to} onValue=${set("to")} />
      <${TextField} label="Time zone" value=${form.timeZone} onValue=${set("timeZone")} />
    </div>
  `;
}
