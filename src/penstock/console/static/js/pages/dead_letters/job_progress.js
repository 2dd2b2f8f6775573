// The progress of one job until it ends: bar, rate, sample, and the button that cancels it.

import { cancelJob, fetchJob } from "../../api/dead_letters.js";
import { ActionButton } from "../../components/action_button.js";
import { Badge } from "../../components/badge.js";
import { Progress } from "../../components/progress.js";
import { Unavailable } from "../../components/states.js";
import { formatCount, formatRate } from "../../format.js";
import { html, useEffect } from "../../html.js";
import { useSession } from "../../session.js";
import { useData } from "../../use_data.js";
import { describeAction, describeFilter, describeProgress, hasEnded, rateOf, STATE_KINDS } from "./job_texts.js";

const INTERVAL_MS = 1_000;

/** `onEnd(job)` is called when the job has ended. */
export function JobProgress({ id, onEnd }) {
  const { data: job, problem, refresh } = useJob(id);
  const isEnded = job !== null && hasEnded(job);
  useEffect(() => {
    if (isEnded) onEnd?.(job);
  }, [isEnded]);
  if (!job) return problem ? html`<${Unavailable} problem=${problem} />` : null;
  return html`<${JobCard} job=${job} onChange=${refresh} />`;
}

function useJob(id) {
  const state = useData((signal) => fetchJob(id, signal), [id], { intervalMs: INTERVAL_MS });
  const shown = state.data?.id === id ? state.data : null;
  return { ...state, data: shown };
}

export function JobCard({ job, onChange }) {
  const { can } = useSession();
  const rate = rateOf(job);
  const cancel = async () => {
    await cancelJob(job.id);
    onChange?.();
    return "The job is cancelled. What it has changed stays.";
  };
  return html`
    <article class="job" aria-label=${`Job: ${describeAction(job)}`}>
      <div class="job-head">
        <b>${describeAction(job)}</b>
        <${Badge} kind=${STATE_KINDS[job.state]}>${job.state}<//>
        <span class="muted">${describeFilter(job)}</span>
        ${!hasEnded(job) && can("operate") && html`<${ActionButton} className="small" action=${cancel}>Cancel job<//>`}
      </div>
      <${Progress} label="Progress of the job" value=${job.changed + job.skipped} total=${hasEnded(job) || job.totalIsExact ? job.total || 1 : 0}>
        ${describeProgress(job)}${rate !== null ? ` · ${formatRate(rate)} per second` : ""}${job.ratePerSecond ? ` (at most ${formatCount(job.ratePerSecond)})` : ""}
      <//>
      ${job.sample && job.sample.passed !== null && html`<p class="job-sample">${describeSample(job.sample)}</p>`}
      ${job.note && html`<p class=${job.state === "failed" ? "job-note bad" : "job-note"}>${job.note}</p>`}
    </article>
  `;
}

function describeSample({ requeued, acked, dead, passed }) {
  return `The sample of ${formatCount(requeued)} ${passed ? "passed" : "failed"}: ${formatCount(acked)} acked, ${formatCount(dead)} dead again.`;
}
