// What the user may do with a queue, as buttons beside its name.

import { deleteQueue, fetchQueue, pauseQueue, purgeQueue, resumeQueue } from "../../api/queue.js";
import { ActionButton } from "../../components/action_button.js";
import { confirm } from "../../components/dialog.js";
import { formatCount } from "../../format.js";
import { html, useState } from "../../html.js";
import { navigate } from "../../location.js";
import { useSession } from "../../session.js";
import { ConfigureDialog, LimitDialog } from "./configure_dialog.js";
import { PushDialog } from "./push_dialog.js";

export function QueueActions({ queue, onChange }) {
  const { can } = useSession();
  const [dialog, setDialog] = useState(null);
  const isRun = queue.kind === "run";
  const close = () => setDialog(null);
  const props = { queue, onClose: close, onChange };
  const run = (action) => async () => {
    const text = await action();
    onChange();
    return text;
  };
  return html`
    ${can("produce") && html`<button type="button" onClick=${() => setDialog("push")}>${isRun ? "Enqueue a task" : "Push a message"}</button>`}
    ${can("operate") && html`<${ActionButton} action=${run(() => togglePause(queue))}>${queue.paused ? "Resume" : "Pause"}<//>`}
    ${isRun && can("operate") && html`<button type="button" onClick=${() => setDialog("limit")}>Limit</button>`}
    ${!isRun && can("configure") && html`<button type="button" onClick=${() => setDialog("configure")}>Configure</button>`}
    ${can("operate") && html`<${ActionButton} className="danger" action=${run(() => purge(queue))}>Purge<//>`}
    ${can("configure") && html`<${ActionButton} className="danger" action=${() => remove(queue)}>Delete<//>`}
    ${dialog === "push" && html`<${PushDialog} ...${props} />`}
    ${dialog === "limit" && html`<${LimitDialog} ...${props} />`}
    ${dialog === "configure" && html`<${ConfigureDialog} ...${props} />`}
  `;
}

async function togglePause(queue) {
  await (queue.paused ? resumeQueue : pauseQueue)(queue);
  return queue.paused ? `${queue.name} is resumed.` : `${queue.name} is paused.`;
}

/** The number of messages or tasks that a purge drops now. */
const waitingCount = (queue) => (queue.kind === "run" ? queue.depth + queue.delayed : queue.depth + queue.running);

async function purge({ name, kind }) {
  const queue = await fetchQueue(name, kind); // the numbers of now
  const noun = queue.kind === "run" ? "tasks that wait or are delayed" : "messages that some group has not finished";
  const isConfirmed = await confirm({
    title: `Purge ${queue.name}?`,
    text: `About ${formatCount(waitingCount(queue))} ${noun} are dropped. ${keptText(queue)} This cannot be undone.`,
    action: "Purge",
    isDangerous: true,
    typedText: queue.name,
  });
  if (!isConfirmed) return undefined;
  const { purged } = await purgeQueue(queue);
  return `${formatCount(purged)} ${queue.kind === "run" ? "tasks" : "messages"} of ${queue.name} were dropped.`;
}

const keptText = ({ kind }) =>
  kind === "run" ? "Running and dead tasks stay." : "Leases end, and finished messages that are still kept go, too. Dead letters stay.";

async function remove({ name, kind }) {
  const queue = await fetchQueue(name, kind);
  const counts = `${formatCount(waitingCount(queue))} waiting and ${formatCount(queue.dead)} dead`;
  const text = queue.kind === "run" ? "A run queue can be deleted when it holds no task." : `Its messages (${counts}), groups, dead letters and traces are deleted. This cannot be undone.`;
  const isConfirmed = await confirm({ title: `Delete ${queue.name}?`, text, action: "Delete", isDangerous: true, typedText: queue.name });
  if (!isConfirmed) return undefined;
  await deleteQueue(queue);
  navigate("/console/queues");
  return `${queue.name} is deleted.`;
}
