// Notices with the state of their delivery.

import { fetchChannels, fetchNotices, retryNotice } from "../../api/alerts.js";
import { ActionButton } from "../../components/action_button.js";
import { DataTable } from "../../components/data_table.js";
import { FilterSelect } from "../../components/filter_select.js";
import { Section } from "../../components/page.js";
import { DataState, Empty } from "../../components/states.js";
import { pageWindow, StepPager } from "../../components/step_pager.js";
import { Time } from "../../components/time.js";
import { html } from "../../html.js";
import { urlOf, useQueryParams } from "../../location.js";
import { useSession } from "../../session.js";
import { useData } from "../../use_data.js";
import { StateBadge } from "./wording.js";

const PAGE_SIZE = 50;
const REFRESH_MS = 2_000;
const STATES = [["", "any state"], ...["pending", "sent", "failed"].map((state) => [state, state])];

export function DeliveriesTab() {
  const [{ state = "", channel = "", page: pageText = "1" }, setParams] = useQueryParams();
  const { page, offset, limit } = pageWindow(pageText, PAGE_SIZE);
  const channels = useData(fetchChannels);
  const notices = useData((signal) => fetchNotices({ state, channel, offset, limit }, signal), [state, channel, page], { intervalMs: REFRESH_MS });
  const filter = (changes) => setParams({ ...changes, page: "" });
  const names = (channels.data?.channels ?? []).map(({ name }) => [name, name]);
  return html`
    <div class="tools">
      <${FilterSelect} label="State" value=${state} options=${STATES} onValue=${(value) => filter({ state: value })} />
      <${FilterSelect} label="Channel" value=${channel} options=${[["", "any channel"], ...names]} onValue=${(value) => filter({ channel: value })} />
    </div>
    <${DataState} state=${notices}>
      ${({ notices: rows }) => html`
        <${Section}>
          ${rows.length === 0
            ? html`<${Empty} title="No notice matches."><p>Notices of resolved incidents are kept for 31 days.</p><//>`
            : html`<${NoticeTable} rows=${rows.slice(0, PAGE_SIZE)} refresh=${notices.refresh} />`}
        <//>
        <${StepPager} page=${page} hasNext=${rows.length > PAGE_SIZE} onPage=${(number) => setParams({ page: number > 1 ? number : "" })} />
      `}
    <//>
  `;
}

function NoticeTable({ rows, refresh }) {
  const { can } = useSession();
  const columns = [
    { key: "state", label: "State", render: ({ state }) => html`<${StateBadge} state=${state} />` },
    { key: "createdAt", label: "Written", render: ({ createdAt }) => html`<${Time} value=${createdAt} />` },
    { key: "rule", label: "Rule", render: ({ rule, incidentId }) => (incidentId ? html`<a href=${urlOf("/console/alerts", { incident: incidentId })}>${rule}</a>` : "test notice") },
    { key: "transition", label: "What" },
    { key: "channel", label: "Channel", render: ({ channel, kind }) => html`${channel} <small>${kind}</small>` },
    { key: "attempts", label: "Attempts", align: "end" },
    { key: "next", label: "Sent", render: ({ sentAt, nextAttemptAt }) => (sentAt ? html`<${Time} value=${sentAt} />` : nextAttemptAt ? html`next attempt <${Time} value=${nextAttemptAt} />` : "") },
    { key: "lastError", label: "Last error", className: "wrap", render: ({ lastError }) => lastError ?? "" },
  ];
  if (can("operate")) {
    columns.push({ key: "actions", label: "Actions", isLabelHidden: true, align: "end", render: (notice) => notice.state === "failed" && html`<${Retry} notice=${notice} refresh=${refresh} />` });
  }
  return html`<${DataTable} caption="Notices" columns=${columns} rows=${rows} rowKey=${({ id }) => id} />`;
}

function Retry({ notice, refresh }) {
  const retry = async () => {
    await retryNotice(notice.id);
    refresh();
    return "The notice is sent again.";
  };
  return html`<${ActionButton} action=${retry}>Retry<//>`;
}
