// The dialog that marks an event in the charts.

import { addAnnotation } from "../../api/annotations.js";
import { useAction } from "../../components/action_button.js";
import { Dialog } from "../../components/dialog.js";
import { CheckboxField, SelectField, TextField } from "../../components/form.js";
import { html, useState } from "../../html.js";

const KINDS = [
  ["note", "note"],
  ["deploy", "deploy"],
];

export function AnnotateButton({ queue, onChange }) {
  const [isOpen, setOpen] = useState(false);
  return html`
    <button type="button" class="small" onClick=${() => setOpen(true)}>Add a note</button>
    ${isOpen && html`<${AnnotateDialog} queue=${queue} onChange=${onChange} onClose=${() => setOpen(false)} />`}
  `;
}

function AnnotateDialog({ queue, onChange, onClose }) {
  const [text, setText] = useState("");
  const [kind, setKind] = useState("note");
  const [isForAll, setForAll] = useState(false);
  const [isBusy, add] = useAction(async () => {
    await addAnnotation({ kind, text, queue: isForAll ? null : queue });
    onChange();
    onClose();
    return "The event is marked in the charts.";
  });
  const submit = (event) => {
    event.preventDefault();
    add();
  };
  return html`
    <${Dialog} title="Mark an event in the charts" onClose=${onClose}>
      <form class="stacked" onSubmit=${submit}>
        <${TextField} label="What happened" required maxlength="1000" value=${text} onValue=${setText} />
        <${SelectField} label="Kind" value=${kind} options=${KINDS} onValue=${setKind} />
        <${CheckboxField} label="In the charts of all queues" checked=${isForAll} onValue=${setForAll} />
        <footer class="dialog-actions">
          <button type="button" onClick=${onClose}>Cancel</button>
          <button type="submit" class="primary" disabled=${isBusy}>Mark</button>
        </footer>
      </form>
    <//>
  `;
}
