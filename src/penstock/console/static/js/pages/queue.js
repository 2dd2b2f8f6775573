// One queue of either kind: the answers to the four questions, charts, groups, partitions, messages, and its actions.

import { fetchAnnotations } from "../api/annotations.js";
import { fetchQueue, fetchWorstPartitions } from "../api/queue.js";
import { fetchQueueMetrics } from "../api/queues.js";
import { NOT_FOUND } from "../api.js";
import { Badge } from "../components/badge.js";
import { Page } from "../components/page.js";
import { PeriodPicker } from "../components/period_picker.js";
import { Empty, Loading, Unavailable } from "../components/states.js";
import { formatCount } from "../format.js";
import { html, useMemo, useRef } from "../html.js";
import { urlOf } from "../location.js";
import { usePeriod } from "../period.js";
import { toColumns } from "../series.js";
import { useSession } from "../session.js";
import { useData } from "../use_data.js";
import { QueueActions } from "./queue/actions.js";
import { AnnotateButton } from "./queue/annotate_dialog.js";
import { Answers } from "./queue/answers.js";
import { QueueCharts } from "./queue/charts.js";
import { Events } from "./queue/events.js";
import { Groups } from "./queue/groups.js";
import { RecentMessages } from "./queue/messages.js";
import { WorstPartitions } from "./queue/partitions.js";
import { answerQuestions, countOf } from "./queue/verdicts.js";

const STATE_INTERVAL_MS = 3_000;
const WORST_INTERVAL_MS = 5_000;
const EVENTS_INTERVAL_MS = 10_000;
const MAX_WORST = 10;
const NO_ANNOTATIONS = [];

export default function QueuePage({ params: { name } }) {
  const kind = useRef(null);
  const queue = useData(async (signal) => {
    const state = await fetchQueue(name, kind.current, signal);
    kind.current = state.kind;
    return state;
  }, [name], { intervalMs: STATE_INTERVAL_MS });
  if (queue.problem?.status === NOT_FOUND) return html`<${UnknownQueue} name=${name} problem=${queue.problem} />`;
  if (!queue.data) {
    const content = queue.problem ? html`<${Unavailable} problem=${queue.problem} />` : html`<${Loading} />`;
    return html`<${Page} title=${name}>${content}<//>`;
  }
  return html`<${QueueContent} name=${name} queue=${queue} />`;
}

function QueueContent({ name, queue }) {
  const { can } = useSession();
  const state = queue.data;
  const isDurable = state.kind === "durable";
  const period = usePeriod();
  const metrics = useData((signal) => fetchQueueMetrics(name, period.params, signal), [name, period.key], { intervalMs: period.intervalMs });
  const series = useMemo(() => (metrics.data ? toColumns(metrics.data) : null), [metrics.data]);
  const worst = useData(
    (signal) => (isDurable ? fetchWorstPartitions(name, "age", MAX_WORST, signal) : []),
    [name, isDurable],
    { intervalMs: WORST_INTERVAL_MS },
  );
  const events = useEvents(name, period, series);
  const refresh = () => {
    queue.refresh();
    events.refresh();
  };
  const answers = answerQuestions(state, series, worst.data?.[0]);
  const annotations = events.data?.annotations ?? NO_ANNOTATIONS;
  return html`
    <${Page} className="queue" title=${name} subtitle=${html`<${Subtitle} state=${state} />`} actions=${html`<${QueueActions} queue=${state} onChange=${refresh} />`}>
      ${queue.problem && html`<${Unavailable} problem=${queue.problem} />`}
      <${Answers} answers=${answers} />
      <${QueueCharts} series=${series} problem=${metrics.problem} annotations=${annotations} period=${period} actions=${html`<${PeriodPicker} />`} />
      <div class="columns">
        ${isDurable && html`<${Groups} queue=${state} onChange=${refresh} />`}
        <${Events}
          annotations=${annotations}
          isComplete=${events.data?.complete ?? true}
          canDelete=${can("operate")}
          onChange=${events.refresh}
          actions=${can("operate") && html`<${AnnotateButton} queue=${name} onChange=${events.refresh} />`}
        />
      </div>
      ${isDurable && html`<${WorstPartitions} queue=${state} oldest=${worst} onChange=${refresh} />`}
      ${isDurable && html`<${RecentMessages} queue=${state} />`}
    <//>
  `;
}

/** The events of the shown time. While it moves with the present, they are fetched now and then. */
function useEvents(name, period, series) {
  const isLive = period.period !== null;
  const lengthMs = series ? (series.end - series.start) * 1_000 : null;
  return useData(
    (signal) => {
      if (!series) return { annotations: NO_ANNOTATIONS, complete: true };
      const end = isLive ? Date.now() : series.end * 1_000;
      return fetchAnnotations(name, end - lengthMs, end, signal);
    },
    [name, period.key, lengthMs],
    { intervalMs: isLive ? EVENTS_INTERVAL_MS : 0 },
  );
}

function Subtitle({ state }) {
  const dead = html`<a href=${urlOf("/console/dead-letters", { queue: state.name })}>${formatCount(state.dead)} dead</a>`;
  const parts = state.kind === "durable" ? `, ${countOf(state.partitionCount, "partition")}` : "";
  return html`
    ${state.kind === "durable" ? "durable queue" : "run queue"}${parts}, ${dead}
    ${state.paused && html` <${Badge} kind="warn">paused<//>`}
  `;
}

const UnknownQueue = ({ name, problem }) => html`
  <${Page} title=${name}>
    <${Empty} title="Queue “${name}” does not exist.">
      <p>${problem.message}</p>
      <p><a href="/console/queues">Go to the queues</a></p>
    <//>
  <//>
`;
