// What limits a queue now.

import { Badge } from "../../components/badge.js";
import { html } from "../../html.js";

export const CAPS = {
  paused: { label: "Paused", kind: "info" },
  own_limit: { label: "Own limit", kind: "warn" },
  environment_limit: { label: "Environment's limit", kind: "warn" },
  no_consumers: { label: "No consumers", kind: "bad" },
  blocked_partition: { label: "Blocked partition", kind: "bad" },
};

/** The limit of a queue of the list, with the reason as a tooltip. */
export function CapBadge({ queue: { cappedBy, capDetail, known } }) {
  if (!known) return html`<${Badge} title="Its server is away">unknown<//>`;
  const cap = CAPS[cappedBy];
  return cap ? html`<${Badge} kind=${cap.kind} title=${capDetail}>${cap.label}<//>` : html`<span class="muted">nothing</span>`;
}
