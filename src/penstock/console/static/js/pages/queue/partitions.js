// The partitions in which groups are furthest behind, by age or by the number of messages.

import { fetchWorstPartitions } from "../../api/queue.js";
import { actionsColumn, DataTable } from "../../components/data_table.js";
import { Section } from "../../components/page.js";
import { DataState, Idle } from "../../components/states.js";
import { Time } from "../../components/time.js";
import { formatCount, formatDuration } from "../../format.js";
import { html, useState } from "../../html.js";
import { useQueryParam } from "../../location.js";
import { useSession } from "../../session.js";
import { useData } from "../../use_data.js";
import { SeekDialog } from "./seek_dialog.js";
import { groupLabel, QUEUE_MODE } from "./verdicts.js";

const INTERVAL_MS = 5_000;
const LIMIT = 10;
const SORTS = { age: "time_lag_seconds", lag: "offset_lag" };

/** `oldest` is the list by age, which the page fetches anyway. */
export function WorstPartitions({ queue, oldest, onChange }) {
  const { can } = useSession();
  const [sort, setSort] = useQueryParam("partitions", "age");
  const isByLag = sort === "lag";
  const [seeking, setSeeking] = useState(null);
  const byLag = useData(
    (signal) => (isByLag ? fetchWorstPartitions(queue.name, "lag", LIMIT, signal) : []),
    [queue.name, isByLag],
    { intervalMs: isByLag ? INTERVAL_MS : 0 },
  );
  const columns = [
    { key: "partition_name", label: "Partition", className: "name" },
    { key: "consumer_group", label: "Group", render: ({ consumer_group: name }) => (name === QUEUE_MODE ? groupLabel(name) : name) },
    { key: "offset_lag", label: "Lag", align: "end", isSortable: true, render: (row) => formatCount(row.offset_lag) },
    { key: "time_lag_seconds", label: "Oldest", align: "end", isSortable: true, render: (row) => formatDuration(row.time_lag_seconds * 1_000) },
    { key: "last_consumed_at", label: "Last leased", align: "end", render: (row) => html`<${Time} value=${row.last_consumed_at} missing="never" />` },
  ];
  if (can("operate")) {
    columns.push(actionsColumn((row) => html`<button type="button" aria-label="Seek in ${row.partition_name}, ${groupLabel(row.consumer_group)}" onClick=${() => setSeeking(row)}>Seek</button>`));
  }
  const selectSort = (key) => setSort(key === SORTS.lag ? "lag" : "age");
  return html`
    <${Section} title="Worst partitions" className="partitions">
      <${DataState} state=${isByLag ? byLag : oldest}>
        ${(rows) =>
          rows.length === 0
            ? html`<${Idle}>No group is behind in any partition.<//>`
            : html`<${DataTable}
                caption="Worst partitions"
                columns=${columns}
                rows=${rows}
                rowKey=${(row) => `${row.partition_id} ${row.consumer_group}`}
                sort=${{ key: SORTS[isByLag ? "lag" : "age"], order: "desc" }}
                onSort=${selectSort}
              />`}
      <//>
      ${seeking &&
      html`<${SeekDialog} queue=${queue} group=${seeking.consumer_group} partition=${seeking.partition_name} onClose=${() => setSeeking(null)} onChange=${onChange} />`}
    <//>
  `;
}
