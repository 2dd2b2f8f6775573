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
import { useLive } from "../live.js";
import { urlOf, useQueryParam } from "../location.js";
import { usePeriod } from "../period.js";
import { refreshAll } from "../refresh.js";
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
import { CurrentTasks } from "./queue/tasks.js";
import { answerQuestions, countOf, groupLabel, mergeLive, QUEUE_MODE } from "./queue/verdicts.js";

const STATE_INTERVAL_MS = 3_000; // the live stream does not have the groups and partitions
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
  const live = useLive(urlOf("/api/v1/live", { topic: "queue", name }));
  const state = mergeLive(queue.data, live.data);
  const isDurable = state.kind === "durable";
  const period = usePeriod();
  const [group, setGroup] = useQueryParam("group");
  const wholeQueue = useSeries(name, "", period);
  const oneGroup = useSeries(name, group, period, group !== "");
  const { series, problem } = group ? oneGroup : wholeQueue;
  const worst = useData(
    (signal) => (isDurable ? fetchWorstPartitions(name, "age", MAX_WORST, signal) : []),
    [name, isDurable],
    { intervalMs: WORST_INTERVAL_MS },
  );
  const events = useEvents(name, period, series);
  const answers = answerQuestions(state, wholeQueue.series, worst.data?.[0]);
  const annotations = events.data?.annotations ?? NO_ANNOTATIONS;
  return html`
    <${Page} className="queue" title=${name} subtitle=${html`<${Subtitle} state=${state} />`} actions=${html`<${QueueActions} queue=${state} onChange=${refreshAll} />`}>
      ${queue.problem && html`<${Unavailable} problem=${queue.problem} />`}
      <${Answers} answers=${answers} />
      <${QueueCharts} series=${series} problem=${problem} annotations=${annotations} period=${period} actions=${html`<${GroupSelect} state=${state} group=${group} onGroup=${setGroup} /><${PeriodPicker} />`} />
      <div class="columns">
        ${isDurable && html`<${Groups} queue=${state} onChange=${refreshAll} />`}
        <${Events}
          annotations=${annotations}
          isComplete=${events.data?.complete ?? true}
          canDelete=${can("operate")}
          onChange=${events.refresh}
          actions=${can("operate") && html`<${AnnotateButton} queue=${name} onChange=${events.refresh} />`}
        />
      </div>
      ${isDurable && html`<${WorstPartitions} queue=${state} oldest=${worst} onChange=${refreshAll} />`}
      ${isDurable ? html`<${RecentMessages} queue=${state} group=${group || defaultGroup(state)} />` : html`<${CurrentTasks} queue=${state} />`}
    <//>
  `;
}

/** The series of the queue, or of one of its groups. */
function useSeries(name, group, period, isNeeded = true) {
  const fetchSeries = (signal) => (isNeeded ? fetchQueueMetrics(name, { ...period.params, group }, signal) : null);
  const { data, problem } = useData(fetchSeries, [name, group, period.key], { intervalMs: isNeeded ? period.intervalMs : 0 });
  const series = useMemo(() => (data ? toColumns(data) : null), [data]);
  return { series, problem };
}

/** The selection of the group whose charts are shown; without one, those of the whole queue. */
function GroupSelect({ state, group, onGroup }) {
  const names = (state.consumerGroups ?? []).map(({ name }) => name);
  if (names.length < 2 && !group) return null;
  return html`
    <label>
      <span class="visually-hidden">Charts of</span>
      <select class="small" onChange=${(event) => onGroup(event.currentTarget.value)}>
        <option value="" selected=${!group}>whole queue</option>
        ${names.map((name) => html`<option key=${name} value=${name} selected=${name === group}>${groupLabel(name)}</option>`)}
      </select>
    </label>
  `;
}

/** The group whose state of messages is shown: consumers without a group, or else the first group. */
function defaultGroup({ consumerGroups }) {
  const names = consumerGroups.map(({ name }) => name);
  return names.includes(QUEUE_MODE) ? QUEUE_MODE : names[0] ?? "";
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
