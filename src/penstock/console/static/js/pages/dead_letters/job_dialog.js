// Requeue or delete all dead letters that match a filter: how many they are, a sample first, the rate, then the progress.

import { createDeadLetterJob } from "../../api/dead_letters.js";
import { useAction } from "../../components/action_button.js";
import { Dialog } from "../../components/dialog.js";
import { CheckboxField, TextField } from "../../components/form.js";
import { DataState } from "../../components/states.js";
import { html, useState } from "../../html.js";
import { useData } from "../../use_data.js";
import { JobProgress } from "./job_progress.js";
import { describeDryRun } from "./job_texts.js";

const SAMPLE_SIZE = 10;

/** `kind`: "requeue" or "purge". `filter`: the body of the request, such as `{ queue, errorGroup }`. */
export function JobDialog({ kind, filter, title, onClose, onEnd }) {
  const [job, setJob] = useState(null);
  return html`
    <${Dialog} title=${title} onClose=${onClose}>
      ${job
        ? html`
            <${JobProgress} id=${job.id} onEnd=${onEnd} />
            <p class="hint">The job continues when you close this. The tab Jobs shows it.</p>
          `
        : html`<${JobForm} ...${{ kind, filter, onClose }} onCreated=${setJob} />`}
    <//>
  `;
}

function JobForm({ kind, filter, onClose, onCreated }) {
  const dryRun = useData(() => createDeadLetterJob(kind, { ...filter, dryRun: true }), [kind]);
  const [hasSample, setHasSample] = useState(kind === "requeue");
  const [rate, setRate] = useState("");
  const [isBusy, start] = useAction(async () => {
    const sample = kind === "requeue" && hasSample ? { sample: SAMPLE_SIZE } : {};
    const limit = rate ? { ratePerSecond: Number(rate) } : {};
    onCreated(await createDeadLetterJob(kind, { ...filter, ...sample, ...limit }));
  });
  const submit = (event) => {
    event.preventDefault();
    start();
  };
  return html`
    <form class="stacked" onSubmit=${submit}>
      <${DataState} state=${dryRun}>${(result) => html`<p role="status"><b>${describeDryRun(result, "dead letters")}</b></p>`}<//>
      ${kind === "requeue"
        ? html`<${CheckboxField}
            label=${`Requeue a sample of ${SAMPLE_SIZE} first`}
            hint="The rest follows when all of them are acked. If one dies again, the job stops and says why."
            checked=${hasSample}
            onValue=${setHasSample}
          />`
        : html`<p>Deleted dead letters cannot be restored. Their messages stay in the log of the queue.</p>`}
      <${TextField} label="At most per second" type="number" min="1" max="100000" value=${rate} onValue=${setRate} hint="empty: as fast as leaves room for other work" />
      <footer class="dialog-actions">
        <button type="button" onClick=${onClose}>Close</button>
        <button type="submit" class=${kind === "purge" ? "danger" : "primary"} disabled=${isBusy || !dryRun.data?.total}>${submitText(kind, hasSample)}</button>
      </footer>
    </form>
  `;
}

function submitText(kind, hasSample) {
  if (kind === "purge") return "Delete all";
  return hasSample ? "Requeue sample, then the rest" : "Requeue all";
}
