// Dialogs that change an error group: ignore it until something happens, assign an owner, write a note.

import { useAction } from "../../components/action_button.js";
import { Dialog } from "../../components/dialog.js";
import { TextAreaField, TextField } from "../../components/form.js";
import { html, useState } from "../../html.js";

/** `onChange(change)` sends the change and returns a promise. */
export function IgnoreDialog({ onChange, onClose }) {
  const [time, setTime] = useState("");
  const [count, setCount] = useState("");
  const [rate, setRate] = useState("");
  const conditions = {
    ...(time ? { time: new Date(time).toISOString() } : {}),
    ...(count ? { count: Number(count) } : {}),
    ...(rate ? { ratePerHour: Number(rate) } : {}),
  };
  const hasConditions = Object.keys(conditions).length > 0;
  const change = { state: "ignored", ...(hasConditions ? { ignoredUntil: conditions } : {}) };
  return html`
    <${ChangeDialog} title="Ignore this error until…" action="Ignore" onSubmit=${() => onChange(change)} onClose=${onClose}>
      <p>Alerts on new errors stop for it. It is back again at whichever comes first; without any of them it stays ignored.</p>
      <div class="fields">
        <${TextField} label="This time" type="datetime-local" value=${time} onValue=${setTime} hint="in the time zone of this browser" />
        <${TextField} label="More dead letters" type="number" min="1" value=${count} onValue=${setCount} hint="for example 100 more" />
        <${TextField} label="More than, per hour" type="number" min="1" value=${rate} onValue=${setRate} hint="in one clock hour" />
      </div>
    <//>
  `;
}

export function OwnerDialog({ group, onChange, onClose }) {
  const [owner, setOwner] = useState(group.owner ?? "");
  const [note, setNote] = useState(group.note ?? "");
  const change = { owner: owner.trim() || null, note: note.trim() || null };
  return html`
    <${ChangeDialog} title="Owner and note" action="Save" onSubmit=${() => onChange(change)} onClose=${onClose}>
      <${TextField} label="Owner" value=${owner} onValue=${setOwner} maxlength="200" hint="a person or a team" />
      <${TextAreaField} label="Note" value=${note} onValue=${setNote} maxlength="2000" />
    <//>
  `;
}

function ChangeDialog({ title, action, onSubmit, onClose, children }) {
  const [isBusy, run] = useAction(onSubmit);
  const submit = async (event) => {
    event.preventDefault();
    if (await run()) onClose();
  };
  return html`
    <${Dialog} title=${title} onClose=${onClose}>
      <form class="stacked" onSubmit=${submit}>
        ${children}
        <footer class="dialog-actions">
          <button type="button" onClick=${onClose}>Cancel</button>
          <button type="submit" class="primary" disabled=${isBusy}>${action}</button>
        </footer>
      </form>
    <//>
  `;
}
