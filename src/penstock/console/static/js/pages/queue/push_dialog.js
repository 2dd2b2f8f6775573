// The dialog that pushes a test message or enqueues a task, empty or with the content of another message.

import { enqueueTask, pushMessage } from "../../api/queue.js";
import { useAction } from "../../components/action_button.js";
import { Dialog } from "../../components/dialog.js";
import { TextAreaField, TextField } from "../../components/form.js";
import { html, useState } from "../../html.js";

const EXAMPLE = { test: true };

/** `message` is the one to clone; its copy gets a transaction id of its own. */
export function PushDialog({ queue, message = null, onClose, onChange }) {
  const isRun = queue.kind === "run";
  const [payload, setPayload] = useState(JSON.stringify(message ? message.data : EXAMPLE, null, 2));
  const [partition, setPartition] = useState(message?.partition ?? "Default");
  const [transactionId, setTransactionId] = useState("");
  const [priority, setPriority] = useState("");
  const [delayS, setDelayS] = useState("");
  const problem = jsonProblem(payload);
  const [isBusy, push] = useAction(async () => {
    const text = isRun ? await sendTask() : await sendMessage();
    onChange();
    onClose();
    return text;
  });
  async function sendTask() {
    const { id } = await enqueueTask(queue.name, taskOf(payload, priority, delayS));
    return `Enqueued as task ${id}.`;
  }
  async function sendMessage() {
    const receipt = await pushMessage(messageOf(queue.name, payload, partition, transactionId));
    if (receipt.status === "duplicate") return `Not pushed: the queue has a message with the transaction id ${transactionId}.`;
    return receipt.status === "queued" || !receipt.status ? `Pushed as ${receipt.transaction_id ?? receipt.transactionId}.` : `The push is ${receipt.status}.`;
  }
  const submit = (event) => {
    event.preventDefault();
    push();
  };
  const title = message ? `Clone and edit a ${isRun ? "task" : "message"}` : isRun ? "Enqueue a test task" : "Push a test message";
  return html`
    <${Dialog} title=${title} className="wide" onClose=${onClose}>
      <form class="stacked" onSubmit=${submit}>
        <${TextAreaField} label="Payload (JSON)" rows="12" value=${payload} onValue=${setPayload} aria-invalid=${Boolean(problem)} />
        ${problem && html`<p class="problem" role="status">${problem}</p>`}
        ${isRun
          ? html`<div class="fields">
              <${TextField} label="Priority" type="number" min="0" max="9" value=${priority} onValue=${setPriority} hint="0 to 9; 9 runs first" />
              <${TextField} label="Delay in seconds" type="number" min="0" step="any" value=${delayS} onValue=${setDelayS} />
            </div>`
          : html`<div class="fields">
              <${TextField} label="Partition" required value=${partition} onValue=${setPartition} />
              <${TextField} label="Transaction id" value=${transactionId} onValue=${setTransactionId} hint="left empty, the broker makes one" />
            </div>`}
        <footer class="dialog-actions">
          <button type="button" onClick=${onClose}>Cancel</button>
          <button type="submit" class="primary" disabled=${isBusy || Boolean(problem)}>${isRun ? "Enqueue" : "Push"}</button>
        </footer>
      </form>
    <//>
  `;
}

/** Return why a text is not JSON, or null if it is. */
export function jsonProblem(text) {
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return `This is not JSON: ${error.message}.`;
  }
}

const messageOf = (queue, payload, partition, transactionId) => ({
  queue,
  partition,
  payload: JSON.parse(payload),
  ...(transactionId ? { transactionId } : {}),
});

const taskOf = (payload, priority, delayS) => ({
  payload: JSON.parse(payload),
  ...(priority ? { priority: Number(priority) } : {}),
  ...(delayS ? { delayMs: Math.round(Number(delayS) * 1_000) } : {}),
});
