// The form of a search. Submitting it writes the filters into the URL, which starts the search.

import { fetchQueueNames, fetchSearchChoices } from "../../api/messages.js";
import { SelectField, TextField } from "../../components/form.js";
import { MESSAGE_STATES } from "../../components/message_state.js";
import { html, useEffect, useId, useState } from "../../html.js";
import { setQueryParams } from "../../location.js";
import { timeZone } from "../../preferences.js";
import { useSession } from "../../session.js";
import { useData } from "../../use_data.js";
import { FILTERS, fromTimeField, toTimeField } from "./search_filters.js";

const ANY = ["", "any"];
const NO_CHOICES = { indexKeys: [], groups: [] };

export function SearchForm({ filters }) {
  const zone = timeZone.use();
  const { can } = useSession();
  const [values, setValues] = useState(filters);
  useEffect(() => setValues(filters), [JSON.stringify(filters)]);
  const { data: names } = useData(fetchQueueNames, []);
  const queue = names?.includes(values.queue) ? values.queue : filters.queue;
  const choices = useData((signal) => fetchSearchChoices(queue, signal), [queue]).data ?? NO_CHOICES;
  const namesId = useId();

  const field = (name) => ({ value: values[name] ?? "", onValue: (value) => setValues({ ...values, [name]: value }) });
  const timeField = (name) => ({
    type: "datetime-local",
    step: 1,
    value: toTimeField(values[name], zone),
    onValue: (text) => setValues({ ...values, [name]: fromTimeField(text, zone) }),
  });
  const submit = (event) => {
    event.preventDefault();
    setQueryParams(Object.fromEntries(FILTERS.map((name) => [name, values[name]?.trim() ?? ""])), { push: true });
  };
  const zoneHint = zone === "UTC" ? "UTC" : undefined;
  return html`
    <form class="search-form" role="search" aria-label="Messages" onSubmit=${submit}>
      <div class="fields">
        <${TextField} label="Queue" placeholder="all queues" list=${namesId} ...${field("queue")} />
        <datalist id=${namesId}>${(names ?? []).map((name) => html`<option key=${name} value=${name} />`)}</datalist>
        <${TextField} label="Partition" placeholder="all" disabled=${!values.queue} ...${field("partition")} />
        <${SelectField} label="State" options=${[ANY, ...MESSAGE_STATES]} ...${field("status")} />
        <${SelectField} label="State for group" options=${groupOptions(choices.groups, values.consumerGroup)} ...${field("consumerGroup")} />
        <${TextField} label="Pushed from" hint=${zoneHint} ...${timeField("from")} />
        <${TextField} label="Pushed before" hint=${zoneHint} ...${timeField("to")} />
        <${TextField} label="Message id" placeholder="UUID" ...${field("id")} />
        <${TextField} label="Transaction id" ...${field("transactionId")} />
        ${can("read:payload") && html`<${TextField} label="Text in the payload" placeholder="any text of its JSON" ...${field("text")} />`}
        ${can("read:payload") && choices.indexKeys.length > 0 &&
        html`
          <${SelectField} label="Index key" options=${[["", "none"], ...choices.indexKeys.map((path) => [path, path])]} ...${field("key")} />
          <${TextField} label="Value of the key" disabled=${!values.key} ...${field("value")} />
        `}
      </div>
      <div class="search-actions">
        <button type="submit" class="primary">Search</button>
        <a class="button" href="/console/messages">Clear</a>
      </div>
    </form>
  `;
}

/** The groups of the queue; without a name the state is that of consumers without a group. */
function groupOptions(groups, selected) {
  const names = new Set([...groups, ...(selected ? [selected] : [])]);
  names.delete("__QUEUE_MODE__");
  return [["", "queue mode"], ...[...names].map((name) => [name, name])];
}
