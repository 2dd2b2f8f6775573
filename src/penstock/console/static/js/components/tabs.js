// Tabs of a page. The selected tab is part of the URL, so each tab is a link.

import { html } from "../html.js";
import { urlOf, useLocation } from "../location.js";

/** `tabs`: `{ key, label, count? }`. The first tab is the default. Return the selected key with `useTab`. */
export function Tabs({ label, tabs, param = "tab" }) {
  const selected = useTab(tabs, param);
  const { pathname } = useLocation();
  return html`
    <nav class="tabs" aria-label=${label}>
      ${tabs.map(({ key, label: text, count }, index) => html`
        <a key=${key} href=${urlOf(pathname, { [param]: index === 0 ? "" : key })} aria-current=${key === selected ? "page" : undefined}>
          ${text}${count ? html` <span class="count">${count}</span>` : ""}
        </a>
      `)}
    </nav>
  `;
}

export function useTab(tabs, param = "tab") {
  const { searchParams } = useLocation();
  const key = searchParams.get(param);
  return tabs.some((tab) => tab.key === key) ? key : tabs[0].key;
}
