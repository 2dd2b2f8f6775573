// The dialog that moves a group to another place in a queue or partition.

import { seekGroup } from "../../api/queue.js";
import { useAction } from "../../components/action_button.js";
import { Dialog } from "../../components/dialog.js";
import { SelectField, TextField } from "../../components/form.js";
import { formatCount } from "../../format.js";
import { html, useState } from "../../html.js";
import { groupLabel } from "./verdicts.js";

const START_OF_TIME = "1970-01-01T00:00:00Z";
const TARGETS = [
  ["end", "the end: skip what waits"],
  ["start", "the first message that is kept: replay everything"],
  ["time", "the first message of a time"],
];

export function SeekDialog({ queue, group, partition = "", onClose, onChange }) {
  const [target, setTarget] = useState("end");
  const [time, setTime] = useState("");
  const [isBusy, seek] = useAction(async () => {
    const result = await seekGroup(queue.name, group, partition, toSeekTarget(target, time));
    onChange();
    onClose();
    return `${groupLabel(group)} moved: ${formatCount(result.messagesSkipped)} messages skipped, ${formatCount(result.messagesReplayed)} to be delivered again.`;
  });
  const submit = (event) => {
    event.preventDefault();
    seek();
  };
  const lag = queue.consumerGroups.find(({ name }) => name === group)?.totalLag ?? 0;
  const movedPartitions = partition ? `partition ${partition} of ${queue.name}` : `all partitions of ${queue.name}`;
  return html`
    <${Dialog} title="Seek ${groupLabel(group)}" onClose=${onClose}>
      <form class="stacked" onSubmit=${submit}>
        <p>In ${movedPartitions}. Leases end: consumers that hold messages get “Lease lost” for their acks.</p>
        <${SelectField} label="Move to" value=${target} options=${TARGETS} onValue=${setTarget} />
        ${target === "time" && html`<${TextField} label="Time" type="datetime-local" step="1" required value=${time} onValue=${setTime} hint="in the time zone of this browser" />`}
        ${target === "end" && lag > 0 && html`<p class="hint">The group has ${formatCount(lag)} unfinished messages in the queue.</p>`}
        <footer class="dialog-actions">
          <button type="button" onClick=${onClose}>Cancel</button>
          <button type="submit" class="danger" disabled=${isBusy}>Seek</button>
        </footer>
      </form>
    <//>
  `;
}

export function toSeekTarget(target, time) {
  if (target === "end") return { toEnd: true };
  return { timestamp: target === "start" ? START_OF_TIME : new Date(time).toISOString() };
}
