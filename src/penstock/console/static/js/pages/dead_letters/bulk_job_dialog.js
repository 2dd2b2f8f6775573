// Delete or dead-letter all messages of a durable queue, or all waiting tasks of a run queue, that match.

import { createBulkJob } from "../../api/dead_letters.js";
import { useAction } from "../../components/action_button.js";
import { Dialog } from "../../components/dialog.js";
import { SelectField, TextField } from "../../components/form.js";
import { html, useState } from "../../html.js";
import { describeDryRun, nounOf } from "./job_texts.js";
import { JobProgress } from "./job_progress.js";

const SUBJECTS = [["messages", "Messages of a durable queue"], ["tasks", "Waiting tasks of a run queue"]];
const KINDS = [["dead_letter", "Move them to the dead letters"], ["purge", "Delete them"]];
const TASK_STATES = [["", "Eligible or delayed"], ["eligible", "Eligible"], ["delayed", "Delayed"]];

/** `initial`: fields that are filled in already, such as `{ queue, subject }`. */
export function BulkJobDialog({ initial = {}, onClose, onCreated }) {
  const [fields, setFields] = useState({ subject: "messages", kind: "dead_letter", ...initial });
  const [dryRun, setDryRun] = useState(null);
  const [job, setJob] = useState(null);
  const set = (name) => (value) => {
    setDryRun(null);
    setFields({ ...fields, [name]: value });
  };
  const [isBusy, run] = useAction(async (isDryRun) => {
    const result = await createBulkJob({ ...toBody(fields), dryRun: isDryRun });
    if (isDryRun) return setDryRun(result);
    setJob(result);
    onCreated?.();
  });
  const submit = (event) => {
    event.preventDefault();
    run(dryRun === null);
  };
  const isMessages = fields.subject === "messages";
  return html`
    <${Dialog} title="Change messages or tasks" onClose=${onClose}>
      ${job
        ? html`<${JobProgress} id=${job.id} onEnd=${onCreated} />`
        : html`<form class="stacked" onSubmit=${submit}>
            <div class="fields">
              <${SelectField} label="What" value=${fields.subject} options=${SUBJECTS} onValue=${set("subject")} />
              <${TextField} label="Queue" value=${fields.queue ?? ""} onValue=${set("queue")} required />
              <${SelectField} label="Action" value=${fields.kind} options=${KINDS} onValue=${set("kind")} />
              ${isMessages
                ? html`
                    <${TextField} label="Consumer group" value=${fields.consumerGroup ?? ""} onValue=${set("consumerGroup")} required=${fields.kind === "dead_letter"} hint="only what this group has not finished" />
                    <${TextField} label="Partition" value=${fields.partition ?? ""} onValue=${set("partition")} />
                  `
                : html`<${SelectField} label="State" value=${fields.taskState ?? ""} options=${TASK_STATES} onValue=${set("taskState")} />`}
              <${TextField} label="Text in the payload" value=${fields.payload ?? ""} onValue=${set("payload")} />
              <${TextField} label="Pushed from" value=${fields.from ?? ""} onValue=${set("from")} hint="a time in ISO 8601" />
              <${TextField} label="Pushed before" value=${fields.to ?? ""} onValue=${set("to")} hint="empty: until now" />
              ${fields.kind === "dead_letter" && html`<${TextField} label="Reason" value=${fields.reason ?? ""} onValue=${set("reason")} hint="the error of the dead letters" />`}
              <${TextField} label="At most per second" type="number" min="1" value=${fields.ratePerSecond ?? ""} onValue=${set("ratePerSecond")} />
            </div>
            <p role="status">${dryRun && describeDryRun(dryRun, nounOf(fields.subject))}</p>
            <footer class="dialog-actions">
              <button type="button" onClick=${onClose}>Close</button>
              <button type="submit" class=${dryRun === null ? "primary" : "danger"} disabled=${isBusy || dryRun?.total === 0}>
                ${dryRun === null ? "Count what matches" : fields.kind === "purge" ? "Delete them" : "Move them to the dead letters"}
              </button>
            </footer>
          </form>`}
    <//>
  `;
}

/** Return the body of the request: without empty fields and those of the other subject. */
export function toBody({ subject, consumerGroup, partition, taskState, reason, ratePerSecond, ...common }) {
  const own = subject === "messages" ? { consumerGroup, partition } : { taskState };
  const all = { subject, ...common, ...own, reason: common.kind === "dead_letter" ? reason : "", ratePerSecond: Number(ratePerSecond) || null };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== "" && value !== null && value !== undefined));
}
