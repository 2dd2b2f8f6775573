// All jobs of the environment, the latest first.

import { fetchJobs } from "../../api/dead_letters.js";
import { Pager } from "../../components/pager.js";
import { DataState, Empty } from "../../components/states.js";
import { Time } from "../../components/time.js";
import { html } from "../../html.js";
import { navigate, useQueryParams } from "../../location.js";
import { useSession } from "../../session.js";
import { useData } from "../../use_data.js";
import { BulkJobDialog } from "./bulk_job_dialog.js";
import { jobUrl, readJobFields } from "./job_url.js";
import { JobCard } from "./job_progress.js";

const INTERVAL_MS = 2_000;
const PAGE_SIZE = 20;

export function Jobs() {
  const { can } = useSession();
  const [params, setParams] = useQueryParams();
  const { page = "1" } = params;
  const offset = (Number(page) - 1) * PAGE_SIZE;
  const jobs = useData((signal) => fetchJobs({ limit: PAGE_SIZE + 1, offset }, signal), [offset], { intervalMs: INTERVAL_MS });
  const create = can("operate") && html`<a class="button" href=${jobUrl({ subject: "messages" })}>Change messages or tasks…</a>`;
  return html`
    <div class="toolbar"><span class="muted">Jobs run in the background. Finished ones are kept for 31 days.</span>${create}</div>
    <${DataState} state=${jobs}>
      ${(data) => html`<${JobList} jobs=${data.jobs} offset=${offset} page=${Number(page)} onPage=${(next) => setParams({ page: String(next) })} onChange=${jobs.refresh} />`}
    <//>
    ${params.subject && can("operate") && html`<${BulkJobDialog} initial=${readJobFields(params)} onClose=${() => navigate(jobUrl(), { replace: true })} onCreated=${jobs.refresh} />`}
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
