// The figures of the whole environment, each with its last hour.

import { Section } from "../../components/page.js";
import { Sparkline } from "../../components/sparkline.js";
import { Stat, Stats } from "../../components/stat.js";
import { useNow } from "../../components/time.js";
import { formatCount, formatDuration, formatRate } from "../../format.js";
import { html } from "../../html.js";

const AGE_INTERVAL_MS = 1_000;

export function Figures({ overview: { totals, series } }) {
  return html`
    <${Section} title="Environment" className="overview-figures" actions=${series && html`<small>lines: the last hour</small>`}>
      <${Stats}>
        <${Figure} label="In /s" value=${formatRate(totals.rateIn)} title="Messages and tasks per second, in the last minute" values=${series?.rateIn} color="--enqueued" />
        <${Figure} label="Out /s" value=${formatRate(totals.rateOut)} title="Acked messages and tasks per second, in the last minute" values=${series?.rateOut} color="--completed" />
        <${Figure} label="Waiting" value=${formatCount(totals.depth)} detail=${describeDelayed(totals)} title="Messages and tasks that wait for a consumer" values=${series?.depth} color="--depth" />
        <${Figure} label="Wait p95" value=${formatDuration(totals.waitP95Ms)} title="95 of 100 waited no longer, in the last minutes" values=${series?.waitP95Ms} color="--p95" />
        <${OldestStat} oldestAt=${totals.oldestAt} />
        <${Stat} label="Running" value=${formatCount(totals.running)} title="Messages and tasks that consumers have leased" />
        <${Stat} label="Dead letters" value=${html`<a href="/console/dead-letters">${formatCount(totals.dead)}</a>`} detail=${describeDead(totals)} kind=${totals.deadLastHour ? "bad" : ""} />
        <${Stat} label="Queues" value=${html`<a href="/console/queues">${formatCount(totals.queues)}</a>`} detail=${describeQueues(totals)} />
        <${Stat} label="Workers" value=${formatCount(totals.workers)} detail="broker processes" />
      <//>
    <//>
  `;
}

const Figure = ({ label, value, detail, title, values, color }) => html`
  <${Stat} label=${label} value=${value} detail=${detail} title=${title}>
    <dd class="trend"><${Sparkline} values=${values ?? []} color=${color} label="${label} in the last hour" /></dd>
  <//>
`;

function OldestStat({ oldestAt }) {
  const now = useNow(AGE_INTERVAL_MS);
  const age = oldestAt === null ? "–" : formatDuration(Math.max(0, now - Date.parse(oldestAt)));
  return html`<${Stat} label="Oldest" value=${age} title="How long the oldest message or task has been waiting" />`;
}

const describeDelayed = ({ delayed }) => (delayed ? `${formatCount(delayed)} delayed` : "");

function describeDead({ deadLastHour }) {
  if (deadLastHour === null) return "last hour unknown";
  return deadLastHour ? `${formatCount(deadLastHour)} in the last hour` : "none in the last hour";
}

function describeQueues({ durableQueues, runQueues, pausedQueues }) {
  const paused = pausedQueues ? `, ${formatCount(pausedQueues)} paused` : "";
  return `${formatCount(durableQueues)} durable, ${formatCount(runQueues)} run${paused}`;
}
