// The search of messages.

import { Page, Section } from "../components/page.js";
import { html } from "../html.js";
import { useQueryParams } from "../location.js";
import { useSession } from "../session.js";
import { searchJobUrl } from "./dead_letters/job_url.js";
import { Results } from "./messages/results.js";
import { SearchForm } from "./messages/search_form.js";
import { readFilters } from "./messages/search_filters.js";
import { useSearch } from "./messages/use_search.js";

export default function MessagesPage() {
  const [query] = useQueryParams();
  const filters = readFilters(query);
  const search = useSearch(filters);
  const { can } = useSession();
  const changeUrl = can("operate") && searchJobUrl(filters);
  const change = changeUrl && html`<a href=${changeUrl}>Change all that match…</a>`;
  return html`
    <${Page} title="Messages" subtitle="Messages of durable queues. Dead tasks are among the dead letters.">
      <${Section} title="Search"><${SearchForm} filters=${filters} /><//>
      <${Section} title="Results" actions=${change}><${Results} search=${search} filters=${filters} /><//>
    <//>
  `;
}
