// The entry of the console.

import { App } from "./shell/app.js";
import { selectEnvironment } from "./environment.js";
import { html, render } from "./html.js";
import { interceptLinks, navigate, urlOf } from "./location.js";

/** Links to a queue had the form /?queue=NAME before each queue had a page. */
function openQueueOfOldLink() {
  const { queue, ...params } = Object.fromEntries(new URLSearchParams(location.search));
  if (location.pathname === "/" && queue) navigate(urlOf(`/console/queues/${encodeURIComponent(queue)}`, params), { replace: true });
}

/** Links in notices name the environment of their page, which is selected before the first request. */
function selectEnvironmentOfLink() {
  const { environment, ...params } = Object.fromEntries(new URLSearchParams(location.search));
  if (!environment) return;
  selectEnvironment(environment);
  navigate(urlOf(location.pathname, params), { replace: true });
}

openQueueOfOldLink();
selectEnvironmentOfLink();
interceptLinks();
render(html`<${App} />`, document.getElementById("app"));
