// Dead letters: their errors with states, and the jobs that change many of them.

import { fetchDeadLetterCounts } from "../api/dead_letters.js";
import { Page, Section } from "../components/page.js";
import { Tabs, useTab } from "../components/tabs.js";
import { formatCount } from "../format.js";
import { html } from "../html.js";
import { useData } from "../use_data.js";
import { ErrorGroups } from "./dead_letters/error_groups.js";
import { Jobs } from "./dead_letters/jobs.js";

const TABS = [
  { key: "errors", label: "Errors" },
  { key: "jobs", label: "Jobs" },
];
const INTERVAL_MS = 10_000;

export default function DeadLettersPage() {
  const tab = useTab(TABS);
  const counts = useData(fetchDeadLetterCounts, [], { intervalMs: INTERVAL_MS });
  return html`
    <${Page} title="Dead letters" subtitle=${counts.data && describeCounts(counts.data)} className="dead-letters">
      <${Tabs} label="Dead letters" tabs=${TABS} />
      <${Section}>${tab === "jobs" ? html`<${Jobs} />` : html`<${ErrorGroups} />`}<//>
    <//>
  `;
}

function describeCounts({ groups, missing }) {
  const rows = groups.filter((row) => row.deadLetters > 0);
  const total = rows.reduce((sum, row) => sum + row.deadLetters, 0);
  const queues = new Set(rows.map((row) => row.queue)).size;
  const text = total ? `${formatCount(total)} in ${formatCount(queues)} ${queues === 1 ? "queue" : "queues"}` : "none";
  return missing ? `${text}, without ${missing}` : text;
}
