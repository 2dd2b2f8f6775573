// All jobs of the environment, the latest first.

import { fetchJobs } from "../../api/dead_letters.js";
import { Pager } from "../../components/pager.js";
import { DataState, Empty } from "../../components/states.js";
import { Time } from "../../components/time.js";
import { html, useState } from "../../html.js";
import { useQueryParam } from "../../location.js";
import { useSession } from "../../session.js";
import { useData } from "../../use_data.js";
import { BulkJobDialog } from "./bulk_job_dialog.js";
import { JobCard } from "./job_progress.js";

const INTERVAL_MS = 2_000;
const PAGE_SIZE = 20;

export function Jobs() {
  const { can } = useSession();
  const [page, setPage] = useQueryParam("page", "1");
  const [isCreating, setCreating] = useState(false);
  const offset = (Number(page) - 1) * PAGE_SIZE;
  const jobs = useData((signal) => fetchJobs({ limit: PAGE_SIZE + 1, offset }, signal), [offset], { intervalMs: INTERVAL_MS });
  const create = can("operate") && html`<button type="button" onClick=${() => setCreating(true)}>Change messages or tasks…</button>`;
  return html`
    <div class="toolbar"><span class="muted">Jobs run in the background. Finished ones are kept for 31 days.</span>${create}</div>
    <${DataState} state=${jobs}>
      ${(data) => html`<${JobList} jobs=${data.jobs} offset=${offset} page=${Number(page)} onPage=${(next) => setPage(String(next))} onChange=${jobs.refresh} />`}
    <//>
    ${isCreating && html`<${BulkJobDialog} onClose=${() => setCreating(false)} onCreated=${jobs.refresh} />`}
  `;
}

function JobList({ jobs, offset, page, onPage, onChange }) {
  if (jobs.length === 0 && offset === 0) {
    return html`<${Empty} title="There are no jobs"><p>Requeue or delete the dead letters of an error to start one.</p><//>`;
  }
  const total = offset + jobs.length;
  return html`
    <ul class="jobs">
      ${jobs.slice(0, PAGE_SIZE).map((job) => html`
        <li key=${job.id}>
          <${JobCard} job=${job} onChange=${onChange} />
          <small>created <${Time} value=${job.createdAt} />${job.createdBy ? ` by ${job.createdBy}` : ""}</small>
        </li>
      `)}
    </ul>
    ${(page > 1 || jobs.length > PAGE_SIZE) && html`<${Pager} page=${page} pageSize=${PAGE_SIZE} total=${total} noun="jobs" onPage=${onPage} />`}
  `;
}
