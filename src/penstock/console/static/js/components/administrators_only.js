// Instead of data of the whole platform, for users who may see only their environment.

import { html } from "../html.js";
import { Empty } from "./states.js";

export const AdministratorsOnly = ({ subject }) => html`
  <${Empty} title="Only platform administrators see ${subject}.">
    <p>These figures are of all environments together. Ask for them, or log in with a token from <code>penstock tokens create --admin</code>.</p>
  <//>
`;
