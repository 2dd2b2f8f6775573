// The events of the shown time as a list: what the marks in the charts stand for.

import { deleteAnnotation } from "../../api/annotations.js";
import { markColor } from "../../chart_marks.js";
import { ActionButton } from "../../components/action_button.js";
import { Section } from "../../components/page.js";
import { Idle } from "../../components/states.js";
import { Time } from "../../components/time.js";
import { html } from "../../html.js";
import { urlOf } from "../../location.js";

const OWN_KINDS = new Set(["pause", "resume", "limit", "seek", "requeue", "purge", "configure", "incident"]);

export function Events({ annotations, isComplete, canDelete, onChange, actions }) {
  const remove = async ({ id }) => {
    await deleteAnnotation(id);
    onChange();
  };
  return html`
    <${Section} title="Events" className="events" actions=${actions}>
      ${annotations.length === 0 && html`<${Idle}>No deploy, change or incident in this time.<//>`}
      <ol>
        ${annotations.map((annotation) => html`
          <li key=${annotation.id} style=${{ "--color": `var(${markColor(annotation.kind)})` }}>
            <i aria-hidden="true"></i>
            <${Time} value=${annotation.at} />
            <span class="event-kind">${annotation.kind}${annotation.ongoing ? ", ongoing" : ""}</span>
            <${EventText} annotation=${annotation} />
            ${annotation.subject && html`<span class="muted">${annotation.subject}</span>`}
            ${canDelete && !OWN_KINDS.has(annotation.kind) &&
            html`<${ActionButton} className="quiet small" aria-label="Delete “${annotation.text}”" action=${() => remove(annotation)}>✕<//>`}
          </li>
        `)}
      </ol>
      ${!isComplete && html`<p class="muted">Only the latest ${annotations.length} events are shown. Zoom in to see the others.</p>`}
    <//>
  `;
}

function EventText({ annotation: { kind, id, text, link } }) {
  const href = kind === "incident" ? urlOf("/console/alerts", { tab: "incidents", incident: id }) : link;
  if (!href) return html`<span class="event-text">${text}</span>`;
  return html`<a class="event-text" href=${href} target=${kind === "incident" ? undefined : "_blank"} rel="noreferrer">${text}</a>`;
}
