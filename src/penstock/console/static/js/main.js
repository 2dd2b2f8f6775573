// The entry of the console.

import { App } from "./shell/app.js";
import { html, render } from "./html.js";
import { interceptLinks } from "./location.js";

interceptLinks();
render(html`<${App} />`, document.getElementById("app"));
