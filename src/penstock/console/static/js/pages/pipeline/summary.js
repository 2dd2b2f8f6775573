// The state of the pipeline in one line of figures.

import { Badge } from "../../components/badge.js";
import { Section } from "../../components/page.js";
import { Stat, Stats } from "../../components/stat.js";
import { Unavailable } from "../../components/states.js";
import { Time } from "../../components/time.js";
import { formatCount, formatDuration, formatRate } from "../../format.js";
import { html } from "../../html.js";

const STALE_S = 15;
const STATE_KINDS = { running: "ok", starting: "info", draining: "info", stopped: "bad", failing: "bad" };

export function Summary({ pipeline }) {
  const { problem, hostname, pid, startedAt, reportedAt } = pipeline;
  const process = hostname && html`<small>pid ${pid} on ${hostname}, started <${Time} value=${startedAt} />, reported <${Time} value=${reportedAt} /></small>`;
  return html`
    ${problem && html`<${Unavailable} problem=${{ title: "The pipeline does not count events", message: problem }} />`}
    <${Section} title=${html`<${StateBadge} pipeline=${pipeline} />`} actions=${process}>
      <${Figures} pipeline=${pipeline} />
    <//>
  `;
}

function StateBadge({ pipeline }) {
  const { state, isRunning } = pipeline;
  if (state === null) return html`<${Badge}>never ran<//>`;
  if (!isRunning && state !== "stopped") return html`<${Badge} kind="bad" title="last state: ${state}">no report<//>`;
  return html`<${Badge} kind=${STATE_KINDS[state] ?? "warn"}>${state}<//>`;
}

function Figures({ pipeline }) {
  const { freshnessAgeSeconds, lag, inputPerSecond, processedPerSecond, rejected, lost, isRunning, triggerMs } = pipeline;
  const isStale = freshnessAgeSeconds !== null && freshnessAgeSeconds > STALE_S && lag > 0;
  const rate = (perSecond) => (isRunning ? `${formatRate(perSecond)} /s` : "–");
  return html`
    <${Stats}>
      <${Stat} label="Newest counted event" value=${formatAge(freshnessAgeSeconds)} detail="old" kind=${isStale ? "warn" : ""} title="An idle platform has no new events, so its newest one grows old." />
      <${Stat} label="Not counted yet" value=${formatCount(lag)} detail="stream entries" kind=${isRunning || !lag ? "" : "bad"} />
      <${Stat} label="Input" value=${rate(inputPerSecond)} detail="entries" />
      <${Stat} label="Newest batch" value=${rate(processedPerSecond)} detail="entries" title="entries of the newest batch per second of its duration" />
      <${Stat} label="Trigger" value=${formatDuration(triggerMs)} title="least time between the starts of two batches; an event after a pause is read at once" />
      <${Stat} label="Lost" value=${formatCount(lost)} detail="entries in 31 days" kind=${lost ? "bad" : ""} title="trimmed from a stream before they were read, or dropped by a broker" />
      <${Stat} label="Rejected" value=${formatCount(rejected)} detail="events in 31 days" kind=${rejected ? "warn" : ""} title="cannot be read; see below" />
    <//>
  `;
}

const formatAge = (seconds) => formatDuration(seconds === null ? null : seconds * 1_000);
