// The entry of the console.

import { App } from "./shell/app.js";
import { html, render } from "./html.js";
import { interceptLinks, navigate, urlOf } from "./location.js";

/** Links to a queue had the form /?queue=NAME before each queue had a page. */
function openQueueOfOldLink() {
  const { queue, ...params } = Object.fromEntries(new URLSearchParams(location.search));
  if (location.pathname === "/" && queue) navigate(urlOf(`/console/queues/${encodeURIComponent(queue)}`, params), { replace: true });
}

openQueueOfOldLink();
interceptLinks();
render(html`<${App} />`, document.getElementById("app"));
