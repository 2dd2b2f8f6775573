// The actions on a deferred operation: retry one that failed, delete one that is not executed.

import { deleteOperation, retryOperation } from "../../api/operations.js";
import { ActionButton } from "../../components/action_button.js";
import { confirm } from "../../components/dialog.js";
import { formatCount } from "../../format.js";
import { html } from "../../html.js";

export function OperationActions({ operation, onChange }) {
  const { operationId, status } = operation;
  const retry = async () => {
    await retryOperation(operationId);
    onChange();
    return "The operation is executed again, before all others of its lane.";
  };
  const remove = async () => {
    if (!(await confirmDeletion(operation))) return undefined;
    await deleteOperation(operationId);
    onChange();
    return "The operation is deleted.";
  };
  return html`
    <span class="row-actions">
      ${status === "failed" && html`<${ActionButton} action=${retry}>Retry<//>`}
      ${status !== "completed" && html`<${ActionButton} action=${remove} className="danger">${status === "pending" ? "Cancel" : "Delete"}<//>`}
    </span>
  `;
}

function confirmDeletion({ type, status, queue, partition, items }) {
  const what = items ? `${formatCount(items)} ${type === "push" ? "messages" : "acks"}` : `A ${type}`;
  const loss = type === "push" ? "Its messages are lost." : "Its messages are delivered again.";
  return confirm({
    title: `${status === "pending" ? "Cancel" : "Delete"} the operation?`,
    text: `${what} for queue ${queue}, partition ${partition}, will never be executed. ${loss} The client was told that the request is accepted.`,
    action: status === "pending" ? "Cancel the operation" : "Delete the operation",
    isDangerous: true,
  });
}
