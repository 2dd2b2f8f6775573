// The journal: pushes on the disk of the broker's machine while PostgreSQL is unreachable.

import { Badge } from "../../components/badge.js";
import { Section } from "../../components/page.js";
import { Progress } from "../../components/progress.js";
import { Stat, Stats } from "../../components/stat.js";
import { Empty } from "../../components/states.js";
import { formatBytes, formatCount, formatDuration, formatPercent } from "../../format.js";
import { html } from "../../html.js";

export function Journal({ journal, outageSeconds }) {
  const badge = outageSeconds > 0
    ? html`<${Badge} kind="bad">PostgreSQL unreachable for ${formatDuration(outageSeconds * 1_000)}<//>`
    : html`<${Badge} kind="ok">PostgreSQL reachable<//>`;
  return html`
    <${Section} title="Journal" actions=${badge}>
      ${journal ? html`<${JournalFigures} journal=${journal} isOutage=${outageSeconds > 0} />` : html`<${NoJournal} />`}
    <//>
  `;
}

function JournalFigures({ journal, isOutage }) {
  const { records, bytes, oldestAgeSeconds, replayedBytes, fileBytes, limitBytes, problem } = journal;
  const isReplayed = records > 0 && !isOutage;
  return html`
    <${Stats}>
      <${Stat} label="Pushes in the journal" value=${formatCount(records)} kind=${records ? "warn" : ""} detail=${records ? formatBytes(bytes) : "empty: pushes go to PostgreSQL"} />
      <${Stat} label="Oldest" value=${records ? formatDuration(oldestAgeSeconds * 1_000) : "–"} />
      <${Stat} label="File" value=${formatBytes(fileBytes)} detail="${formatPercent(fileBytes / limitBytes)} of ${formatBytes(limitBytes)}" kind=${problem ? "bad" : ""} />
    <//>
    ${isReplayed && html`<${Progress} label="Replay of the journal" value=${replayedBytes} total=${fileBytes}>${formatBytes(replayedBytes)} of ${formatBytes(fileBytes)} replayed<//>`}
    ${problem && html`<p class="problem" role="alert">It takes no pushes: ${problem}. Restore PostgreSQL, or free space on the broker's disk.</p>`}
  `;
}

const NoJournal = () => html`
  <${Empty} title="The journal is switched off.">
    <p>While PostgreSQL is unreachable, pushes get 503. Set <code>PENSTOCK_JOURNAL_MB</code> to keep them on disk instead.</p>
  <//>
`;
