// What Spark executes: running stages, executors, and the driver's heap, as of the last report.

import { DataTable } from "../../components/data_table.js";
import { Section } from "../../components/page.js";
import { Progress } from "../../components/progress.js";
import { Stat, Stats } from "../../components/stat.js";
import { Idle, NoData } from "../../components/states.js";
import { formatBytes, formatCount, formatDuration, formatPercent } from "../../format.js";
import { html } from "../../html.js";

const EXECUTOR_COLUMNS = [
  { key: "id", label: "Executor" },
  { key: "address", label: "Address" },
  { key: "cores", label: "Cores", align: "end" },
  { key: "activeTasks", label: "Running tasks", align: "end", render: ({ activeTasks }) => formatCount(activeTasks) },
  { key: "completedTasks", label: "Completed", align: "end", render: ({ completedTasks }) => formatCount(completedTasks) },
  { key: "failedTasks", label: "Failed", align: "end", render: ({ failedTasks }) => html`<span class=${failedTasks ? "bad-figure" : ""}>${formatCount(failedTasks)}</span>` },
  { key: "taskSeconds", label: "Task time", align: "end", render: ({ taskSeconds }) => formatDuration(taskSeconds * 1_000) },
  { key: "gcSeconds", label: "Garbage collection", align: "end", render: ({ gcSeconds, taskSeconds }) => (taskSeconds ? formatPercent(gcSeconds / taskSeconds) : "–") },
];

export function Spark({ spark, isRunning }) {
  if (!spark || !isRunning) return html`<${Section} title="Spark"><${NoData}>Spark does not run, or its pipeline does not report.<//><//>`;
  const { master, cores, heapBytes, heapLimitBytes, stages, executors } = spark;
  const running = executors.reduce((total, { activeTasks }) => total + activeTasks, 0);
  return html`
    <${Section} title="Spark">
      <${Stats}>
        <${Stat} label="Master" value=${master} detail="${formatCount(cores)} cores" />
        <${Stat} label="Running tasks" value=${formatCount(running)} detail=${executors.length === 1 ? "1 executor" : `${formatCount(executors.length)} executors`} />
        <${Stat} label="Driver's heap" value=${formatBytes(heapBytes)} detail="${formatPercent(heapBytes / heapLimitBytes)} of ${formatBytes(heapLimitBytes)}" kind=${heapBytes > 0.9 * heapLimitBytes ? "warn" : ""} />
      <//>
      ${stages.length ? stages.map((stage) => html`<${Stage} key=${stage.stage} stage=${stage} />`) : html`<${Idle}>No stage was running when the pipeline reported.<//>`}
      <${DataTable} caption="Executors" columns=${EXECUTOR_COLUMNS} rows=${executors} rowKey=${({ id }) => id} />
    <//>
  `;
}

const Stage = ({ stage: { stage, tasks, active, completed, failed } }) => html`
  <${Progress} label="Stage ${stage}" value=${completed} total=${tasks}>
    stage ${stage}: ${completed} of ${tasks} tasks, ${active} running${failed ? `, ${failed} failed` : ""}
  <//>
`;
