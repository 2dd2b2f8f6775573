// Tasks of a run queue that run, wait or are delayed. Payloads are shown to those who may read them.

import { fetchCurrentTasks } from "../../api/queue.js";
import { Badge } from "../../components/badge.js";
import { actionsColumn, DataTable } from "../../components/data_table.js";
import { Section } from "../../components/page.js";
import { DataState, Idle } from "../../components/states.js";
import { Time } from "../../components/time.js";
import { formatCount } from "../../format.js";
import { html, useState } from "../../html.js";
import { urlOf } from "../../location.js";
import { useSession } from "../../session.js";
import { useData } from "../../use_data.js";
import { PayloadCell } from "./payload_cell.js";
import { jobUrl } from "../dead_letters/job_url.js";
import { PushDialog } from "./push_dialog.js";

const INTERVAL_MS = 5_000;
const LIMIT = 10;
const STATES = { running: ["running", "info"], eligible: ["waiting", ""], delayed: ["delayed", "warn"] };
const STATE_ORDER = Object.keys(STATES);

/** Running tasks first, the longest running at the top; then those that run next, then delayed ones. */
export const sortTasks = (tasks) =>
  tasks.toSorted((a, b) => {
    if (a.state !== b.state) return STATE_ORDER.indexOf(a.state) - STATE_ORDER.indexOf(b.state);
    if (a.state === "running") return Date.parse(a.startedAt) - Date.parse(b.startedAt);
    return a.state === "delayed" ? Date.parse(a.eligibleAt) - Date.parse(b.eligibleAt) : 0;
  });

export function CurrentTasks({ queue }) {
  const { can } = useSession();
  const [cloned, setCloned] = useState(null);
  const tasks = useData(async (signal) => sortTasks(await fetchCurrentTasks(queue.name, LIMIT, signal)), [queue.name], { intervalMs: INTERVAL_MS });
  const canRead = can("read:payload");
  const columns = [
    { key: "state", label: "State", render: ({ state }) => html`<${Badge} kind=${STATES[state][1]}>${STATES[state][0]}<//>` },
    { key: "enqueuedAt", label: "Enqueued", render: ({ enqueuedAt }) => html`<${Time} value=${enqueuedAt} />` },
    { key: "startedAt", label: "Started", render: ({ state, startedAt }) => html`<${Time} value=${state === "running" ? startedAt : null} />` },
    { key: "id", label: "Task", className: "name" },
    { key: "worker", label: "Worker", render: ({ worker }) => worker || "–" },
    { key: "attempts", label: "Attempts", align: "end", render: ({ attempts, maxAttempts }) => `${formatCount(attempts)} of ${formatCount(maxAttempts)}` },
    { key: "priority", label: "Priority", align: "end" },
  ];
  if (canRead) columns.push({ key: "payload", label: "Payload", className: "payload", render: (task) => html`<${PayloadCell} name=${task.id} payload=${task.payload} problem=${task.payloadProblem} />` });
  if (canRead && can("produce")) {
    columns.push(actionsColumn((task) => html`<button type="button" aria-label="Clone ${task.id}" onClick=${() => setCloned({ data: task.payload })}>Clone</button>`));
  }
  const links = html`
    ${can("operate") && html`<a href=${jobUrl({ subject: "tasks", queue: queue.name })}>Change all that match…</a>`}
    <a href=${urlOf("/console/dead-letters", { queue: queue.name })}>Dead tasks</a>
  `;
  return html`
    <${Section} title="Tasks" className="recent" actions=${links}>
      <${DataState} state=${tasks}>
        ${(rows) =>
          rows.length === 0
            ? html`<${Idle}>No task runs, waits or is delayed.<//>`
            : html`<${DataTable} caption="Tasks" columns=${columns} rows=${rows} rowKey=${({ id }) => id} />`}
      <//>
      ${cloned && html`<${PushDialog} queue=${queue} message=${cloned} onClose=${() => setCloned(null)} onChange=${tasks.refresh} />`}
    <//>
  `;
}
