// Events that are not counted: why, how many, and an example.

import { fetchLosses } from "../../api/pipeline.js";
import { Badge } from "../../components/badge.js";
import { Command } from "../../components/copy_button.js";
import { DataTable } from "../../components/data_table.js";
import { Section } from "../../components/page.js";
import { DataState, Idle } from "../../components/states.js";
import { Time } from "../../components/time.js";
import { formatCount } from "../../format.js";
import { html } from "../../html.js";
import { useData } from "../../use_data.js";

const INTERVAL_MS = 15_000;

const MEANINGS = {
  trimmed: "entries that left a stream before they were read: the pipeline was behind for too long",
  dropped: "events that a broker dropped: Redis was unreachable for too long",
  stream_replaced: "Redis came back with fewer entries than it had",
  replayed: "rejected events that were counted after a replay",
  missing_dimension: "an event lacks a dimension",
  not_text: "a name is not UTF-8",
  not_a_number: "a value is not a whole number",
  too_large: "a value has more than 15 digits",
  negative_count: "a counter is negative",
  bad_time: "the time is too far in the past or the future",
  repeated_field: "a field comes twice",
  nothing_measured: "an event has dimensions only",
  broken_pack: "a packed entry cannot be parsed",
};
const KINDS = { trimmed: "bad", dropped: "bad", stream_replaced: "bad", replayed: "ok" };

const COLUMNS = [
  { key: "reason", label: "Reason", render: ({ reason }) => html`<${Badge} kind=${KINDS[reason] ?? "warn"}>${reason}<//>` },
  { key: "metric", label: "Metric" },
  { key: "events", label: "Number", align: "end", render: ({ events, reason }) => (reason === "stream_replaced" ? "–" : formatCount(events)) },
  { key: "first", label: "First", render: ({ first }) => html`<${Time} value=${first} />` },
  { key: "last", label: "Last", render: ({ last }) => html`<${Time} value=${last} />` },
  { key: "meaning", label: "Meaning", className: "wrap", render: ({ reason }) => MEANINGS[reason] ?? "" },
  { key: "example", label: "Example", className: "wrap", render: ({ example }) => example && html`<code>${example}</code>` },
];

export function Losses() {
  const state = useData(fetchLosses, [], { intervalMs: INTERVAL_MS });
  return html`
    <${Section} title="Events that are not counted">
      <${DataState} state=${state}>
        ${({ losses }) =>
          losses.length === 0
            ? html`<${Idle}>Every event of the last 31 days is counted.<//>`
            : html`
                <${DataTable} caption="Events that are not counted, by reason" columns=${COLUMNS} rows=${losses} rowKey=${({ metric, reason }) => `${metric} ${reason}`} />
                ${losses.some(({ reason }) => !KINDS[reason]) && html`<p class="hint">Rejected events are kept for 31 days. Once their cause is fixed, count them:</p><${Command} text="penstock pipeline replay --dry-run" />`}
              `}
      <//>
    <//>
  `;
}
