// One message: its state for each group, its life, its payload, and its queue at that time.

import { findLife } from "../api/messages.js";
import { DataTable } from "../components/data_table.js";
import { JsonView } from "../components/json_view.js";
import { MessageState } from "../components/message_state.js";
import { Page, Section } from "../components/page.js";
import { DataState, Empty, Idle } from "../components/states.js";
import { Time } from "../components/time.js";
import { formatCount } from "../format.js";
import { html } from "../html.js";
import { urlOf, useQueryParams } from "../location.js";
import { useData } from "../use_data.js";
import { MessageButtons } from "./message/message_buttons.js";
import { LifeChart } from "./message/life_chart.js";
import { TimeLine } from "./message/time_line.js";

const INTERVAL_MS = 5_000;

const GROUP_COLUMNS = [
  { key: "name", label: "Group", render: ({ name }) => (name === "__QUEUE_MODE__" ? "queue mode" : name) },
  { key: "status", label: "State", render: ({ status }) => html`<${MessageState} status=${status} />` },
  { key: "retryCount", label: "Failed attempts", align: "end", render: ({ retryCount }) => formatCount(retryCount) },
  { key: "leaseExpiresAt", label: "Lease ends", render: ({ leaseExpiresAt }) => html`<${Time} value=${leaseExpiresAt} />` },
  { key: "errorMessage", label: "Error", className: "wrap", render: ({ errorMessage }) => errorMessage ?? "–" },
];

export default function MessagePage({ params: { id } }) {
  const [{ queue, partitionId, transactionId }] = useQueryParams();
  const life = useData((signal) => findLife(id, { queue, partitionId, transactionId }, signal), [id, partitionId, transactionId], {
    intervalMs: INTERVAL_MS,
  });
  const message = life.data?.events ? life.data : null;
  return html`
    <${Page}
      title="Message ${message?.transactionId ?? id}"
      subtitle=${message && html`<${Place} message=${message} />`}
      actions=${message && html`<${MessageButtons} message=${message} onChange=${life.refresh} />`}
    >
      ${life.data === null && !life.isLoading && !life.problem
        ? html`<${Unknown} id=${id} />`
        : html`<${DataState} state=${life}>${(data) => (data.task ? html`<${Task} task=${data.task} />` : html`<${Life} message=${data} />`)}<//>`}
    <//>
  `;
}

const Place = ({ message: { queue, partition, offset, createdAt } }) => html`
  <a href="/console/queues/${encodeURIComponent(queue)}">${queue}</a>, partition ${partition}, offset ${formatCount(offset)}, pushed
  ${" "}<${Time} value=${createdAt} />
`;

function Life({ message }) {
  return html`
    <div class="message-sections">
      <div class="message-columns">
        <${Section} title="Life" className="life"><${TimeLine} message=${message} /><//>
        <div class="stacked">
          <${Section} title="Groups">
            ${message.consumerGroups.length === 0
              ? html`<${Idle}>No consumer has read this queue yet.<//>`
              : html`<${DataTable} caption="State for each group" columns=${GROUP_COLUMNS} rows=${message.consumerGroups} rowKey=${({ name }) => name} />`}
          <//>
          <${Section} title="Payload">
            ${message.dataProblem ? html`<p class="muted">${message.dataProblem}</p>` : html`<${JsonView} value=${message.data} />`}
          <//>
        </div>
      </div>
      <${LifeChart} message=${message} />
    </div>
  `;
}

const Task = ({ task }) => html`<${Section} title="Task of a run queue"><${JsonView} value=${task} label="Task" /><//>`;

const Unknown = ({ id }) => html`
  <${Empty} title="No message or task has this id.">
    <p>It may have been deleted or dropped by retention. <a href=${urlOf("/console/messages", { transactionId: id })}>Search for it as a transaction id</a></p>
  <//>
`;
