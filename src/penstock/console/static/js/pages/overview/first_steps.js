// What a new environment shows: how to push the first message.

import { Command } from "../../components/copy_button.js";
import { Empty } from "../../components/states.js";
import { html } from "../../html.js";
import { useSession } from "../../session.js";

export function FirstSteps() {
  const { isLocal } = useSession();
  return html`
    <${Empty} title="No queues yet">
      <p>The first push to a queue creates it. Push a message from a shell:</p>
      <${Command} text=${pushCommand(location.origin, isLocal)} />
      <p>It appears here within seconds. <a href="/docs/guide/tutorial.html" target="_blank">Tutorial</a> · <a href="/docs" target="_blank">All routes</a></p>
    <//>
  `;
}

/** Return the command that pushes a first message. A broker that requires a token gets that of the environment. */
export function pushCommand(origin, isLocal) {
  return [
    `curl -X POST ${origin}/api/v1/push`,
    `-H 'content-type: application/json'`,
    ...(isLocal ? [] : [`-H "authorization: Bearer $PENSTOCK_TOKEN"`]),
    `-d '{"items": [{"queue": "hello", "payload": {"greeting": "hi"}}]}'`,
  ].join(" \\\n  ");
}
