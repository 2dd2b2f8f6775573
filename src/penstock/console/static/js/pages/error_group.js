// One error group: its state, what operators recorded about it, its trend and its dead letters.

import { fetchErrorGroup } from "../api/dead_letters.js";
import { NOT_FOUND } from "../api.js";
import { Page, Section } from "../components/page.js";
import { Sparkline } from "../components/sparkline.js";
import { Stat, Stats } from "../components/stat.js";
import { DataState, Empty } from "../components/states.js";
import { Time } from "../components/time.js";
import { formatCount } from "../format.js";
import { html } from "../html.js";
import { urlOf, useQueryParam } from "../location.js";
import { useData } from "../use_data.js";
import { describeState, StateBadge } from "./dead_letters/group_state.js";
import { GroupActions } from "./dead_letters/group_actions.js";
import { Letters } from "./dead_letters/letters.js";

const INTERVAL_MS = 3_000;
const TREND_HOURS = 48;

export default function ErrorGroupPage({ params: { errorGroup } }) {
  const [queue] = useQueryParam("queue");
  const state = useData((signal) => fetchErrorGroup(errorGroup, { queue, hours: TREND_HOURS }, signal), [errorGroup, queue], { intervalMs: INTERVAL_MS });
  const group = state.data;
  const actions = group && html`<${GroupActions} group=${group} queue=${queue || null} onChange=${state.refresh} />`;
  if (!group && state.problem?.status === NOT_FOUND) {
    return html`
      <${Page} title="Unknown error">
        <${Empty} title="No dead letter has this error"><p><a href="/console/dead-letters">Back to all errors</a></p><//>
      <//>
    `;
  }
  return html`
    <${Page} title=${group?.error ?? "Error"} subtitle=${html`<a href=${urlOf("/console/dead-letters", { queue })}>All errors</a>`} actions=${actions} className="error-group">
      <${DataState} state=${state}>${(data) => html`<${Group} group=${data} />`}<//>
      <${Section} title="Dead letters"><${Letters} filter=${{ errorGroup, queue }} onChange=${state.refresh} /><//>
    <//>
  `;
}

const Group = ({ group }) => html`
  <${Section}>
    <p class="group-state"><${StateBadge} group=${group} /> <span>${describeState(group)}</span></p>
    <${Stats}>
      <${Stat} label="Dead letters" value=${formatCount(group.deadLetters)} />
      <${Stat} label="First" value=${html`<${Time} value=${group.firstFailedAt} />`} />
      <${Stat} label="Last" value=${html`<${Time} value=${group.lastFailedAt} />`} />
      <${Stat} label="Queues" value=${formatCount(group.queues.length)} detail=${group.queues.join(", ")} />
      <${Stat} label="Owner" value=${group.owner ?? "–"} />
      <${Stat} label="Last 48 h" value=${html`<${Sparkline} values=${group.trend} label="Dead letters by the hour of their death, last 48 hours" color="--dead" />`} />
    <//>
    ${group.note && html`<p class="group-note">${group.note}</p>`}
    ${group.changedAt && html`<p class="hint">Changed <${Time} value=${group.changedAt} /> by ${group.changedBy}</p>`}
    ${group.example && html`<h3>Example</h3><pre class="error-text" tabindex="0" role="region" aria-label="Example of the error">${group.example}</pre>`}
  <//>
`;
