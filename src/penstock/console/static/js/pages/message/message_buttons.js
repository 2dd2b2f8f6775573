// What a user does with one message: clone and edit, requeue, declare dead, delete.

import { declareDead, deleteMessage, requeueMessage } from "../../api/messages.js";
import { ActionButton } from "../../components/action_button.js";
import { confirm } from "../../components/dialog.js";
import { messageUrl } from "../../components/message_state.js";
import { html, useState } from "../../html.js";
import { navigate } from "../../location.js";
import { useSession } from "../../session.js";
import { PushDialog } from "../queue/push_dialog.js";

export function MessageButtons({ message, onChange }) {
  const { can } = useSession();
  const canClone = can("produce") && !message.dataProblem;
  return html`
    ${canClone && html`<${CloneButton} message=${message} onChange=${onChange} />`}
    ${can("operate") && html`<${OperatorButtons} message=${message} onChange=${onChange} />`}
  `;
}

function CloneButton({ message, onChange }) {
  const [isOpen, setOpen] = useState(false);
  const queue = { kind: "durable", name: message.queue };
  return html`
    <button type="button" onClick=${() => setOpen(true)}>Clone and edit</button>
    ${isOpen && html`<${PushDialog} queue=${queue} message=${message} onClose=${() => setOpen(false)} onChange=${onChange} />`}
  `;
}

function OperatorButtons({ message, onChange }) {
  const dead = message.consumerGroups.filter(({ status }) => status === "dead_letter");
  const open = message.consumerGroups.find(({ status }) => status === "pending" || status === "processing");
  return html`
    ${dead.length > 0 && html`<${ActionButton} action=${() => requeue(message)}>Requeue<//>`}
    ${open && html`<${ActionButton} action=${() => moveToDeadLetters(message, open.name, onChange)}>Move to dead letters<//>`}
    <${ActionButton} className="danger" action=${() => remove(message)}>Delete<//>
  `;
}

/** Push the message again and open the page of the new one. */
async function requeue(message) {
  const { messageId, transactionId, partitionId } = await requeueMessage(message);
  navigate(messageUrl({ id: messageId, transactionId, partitionId }));
  return "Requeued: this is the new message.";
}

async function moveToDeadLetters(message, group, onChange) {
  const isConfirmed = await confirm({
    title: "Move to the dead letters?",
    text: `Group ${group === "__QUEUE_MODE__" ? "queue mode" : group} gets this message no more. You can requeue it later.`,
    action: "Move to dead letters",
  });
  if (!isConfirmed) return;
  await declareDead(message, group);
  onChange();
  return "The message is a dead letter now.";
}

async function remove(message) {
  const isConfirmed = await confirm({
    title: "Delete this message?",
    text: "Its payload is erased and no group receives it any more. This cannot be undone.",
    action: "Delete",
    isDangerous: true,
  });
  if (!isConfirmed) return;
  await deleteMessage(message);
  navigate("/console/messages");
  return "The message is deleted.";
}
