// Access: tokens, environments, quotas and the audit log. Tabs that the user may not open are not there.

import { Page } from "../components/page.js";
import { Tabs, useTab } from "../components/tabs.js";
import { html } from "../html.js";
import { useSession } from "../session.js";
import { AuditTab } from "./access/audit.js";
import { EnvironmentsTab } from "./access/environments.js";
import { QuotasTab } from "./access/quotas.js";
import { TokensTab } from "./access/tokens.js";

const TABS = [
  { key: "tokens", label: "Tokens", scope: "admin", Content: TokensTab },
  { key: "environments", label: "Environments", scope: "read", Content: EnvironmentsTab },
  { key: "quotas", label: "Quotas", scope: "read", Content: QuotasTab },
  { key: "audit", label: "Audit log", scope: "admin", Content: AuditTab },
];

export default function AccessPage() {
  const { can } = useSession();
  const tabs = TABS.filter(({ scope }) => can(scope));
  const selected = useTab(tabs);
  const { Content } = tabs.find(({ key }) => key === selected);
  return html`
    <${Page} title="Access" className="access">
      <${Tabs} label="Access" tabs=${tabs} />
      <${Content} />
    <//>
  `;
}
