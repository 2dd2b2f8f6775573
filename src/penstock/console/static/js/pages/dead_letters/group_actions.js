// What an operator may do with an error group. Others see no buttons.

import { changeErrorGroup } from "../../api/dead_letters.js";
import { ActionButton } from "../../components/action_button.js";
import { html, useState } from "../../html.js";
import { useSession } from "../../session.js";
import { IgnoreDialog, OwnerDialog } from "./change_dialogs.js";
import { JobDialog } from "./job_dialog.js";

/** `queue` is the queue whose group is shown, or null for all queues. `onChange()` is called after each change. */
export function GroupActions({ group, queue, onChange }) {
  const { can } = useSession();
  const [dialog, setDialog] = useState(null);
  if (!can("operate")) return null;
  const change = async (fields) => {
    await changeErrorGroup(group.errorGroup, queue, fields);
    onChange();
    return "The error group is changed.";
  };
  const close = () => setDialog(null);
  const filter = { errorGroup: group.errorGroup, ...(queue ? { queue } : {}) };
  const setState = (state) => () => change({ state });
  const open = (name) => () => setDialog(name);
  return html`
    ${group.deadLetters > 0 && html`<button type="button" class="primary" onClick=${open("requeue")}>Requeue…</button>`}
    ${group.state !== "resolved" && html`<${ActionButton} action=${setState("resolved")}>Resolve<//>`}
    ${group.state !== "open" && html`<${ActionButton} action=${setState("open")}>${group.state === "ignored" ? "Stop ignoring" : "Mark open"}<//>`}
    <button type="button" onClick=${open("ignore")}>Ignore until…</button>
    <button type="button" onClick=${open("owner")}>Owner and note…</button>
    ${group.deadLetters > 0 && html`<button type="button" class="danger" onClick=${open("purge")}>Delete all…</button>`}
    ${dialog === "ignore" && html`<${IgnoreDialog} onChange=${change} onClose=${close} />`}
    ${dialog === "owner" && html`<${OwnerDialog} group=${group} onChange=${change} onClose=${close} />`}
    ${dialog === "requeue" && html`<${JobDialog} kind="requeue" title="Requeue the dead letters of this error" filter=${filter} onClose=${close} onEnd=${onChange} />`}
    ${dialog === "purge" && html`<${JobDialog} kind="purge" title="Delete the dead letters of this error" filter=${filter} onClose=${close} onEnd=${onChange} />`}
  `;
}
