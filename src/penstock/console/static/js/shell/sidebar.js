// The navigation: one link for each page that has a place in it and that the user may open.

import { html, useEffect, useLayoutEffect, useState } from "../html.js";
import { addShortcut } from "../keyboard.js";
import { navigate, useLocation } from "../location.js";
import { findRoute, ROUTES } from "../routes.js";
import { useSession } from "../session.js";

export function Sidebar() {
  const { pathname } = useLocation();
  const { can } = useSession();
  const [isOpen, setOpen] = useState(false);
  const current = findRoute(pathname)?.route;
  const routes = ROUTES.filter(({ nav, scope }) => nav && (!scope || can(scope)));

  useLayoutEffect(() => {
    const removers = routes.map(({ path, nav }) => addShortcut(nav.shortcut, `Go to ${nav.label}`, () => navigate(path)));
    return () => removers.forEach((remove) => remove());
  }, [routes.length]);
  useEffect(() => setOpen(false), [pathname]);

  return html`
    <nav class="sidebar" aria-label="Pages" data-open=${isOpen}>
      <button type="button" class="menu" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
        ${current?.nav?.label ?? current?.title ?? "Menu"}
      </button>
      <ul>
        ${routes.map((route) => html`
          <li key=${route.path}>
            <a href=${route.path} aria-current=${isCurrent(route, current) ? "page" : undefined} title="Keys: ${route.nav.shortcut}">${route.nav.label}</a>
          </li>
        `)}
      </ul>
      <ul class="secondary">
        <li><a href="/docs/guide/" target="_blank">Guide</a></li>
        <li><a href="/docs" target="_blank">API reference</a></li>
      </ul>
    </nav>
  `;
}

/** A page without a link of its own belongs to the link above it: a queue to Queues. */
const isCurrent = (route, current) =>
  current === route || (current && !current.nav && route.path !== "/" && current.path.startsWith(`${route.path}/`));
