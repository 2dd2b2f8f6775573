// The dead letters of an error group, and one of them in a dialog.

import { deleteDeadLetter, fetchDeadLetter, fetchDeadLetters, requeueDeadLetter } from "../../api/dead_letters.js";
import { ActionButton } from "../../components/action_button.js";
import { DataTable } from "../../components/data_table.js";
import { confirm, Dialog } from "../../components/dialog.js";
import { JsonView } from "../../components/json_view.js";
import { DataState, Idle } from "../../components/states.js";
import { Time } from "../../components/time.js";
import { formatCount } from "../../format.js";
import { html, useEffect, useState } from "../../html.js";
import { useQueryParam } from "../../location.js";
import { useSession } from "../../session.js";
import { useData } from "../../use_data.js";

const PAGE_SIZE = 25;
const INTERVAL_MS = 5_000;

export function Letters({ filter, onChange }) {
  const [shownId, setShownId] = useQueryParam("letter");
  const [cursors, setCursors] = useState([""]);
  const cursor = cursors.at(-1);
  const letters = useData((signal) => fetchDeadLetters({ ...filter, cursor, limit: PAGE_SIZE }, signal), [filter.errorGroup, filter.queue, cursor], { intervalMs: INTERVAL_MS });
  useEffect(() => setCursors([""]), [filter.errorGroup, filter.queue]);
  const close = () => setShownId("");
  const afterChange = () => {
    close();
    letters.refresh();
    onChange();
  };
  return html`
    <${DataState} state=${letters}>
      ${(data) => html`
        ${data.messages.length === 0 && cursors.length === 1
          ? html`<${Idle}>No dead letter has this error now.<//>`
          : html`<${DataTable} caption="Dead letters of this error" columns=${columnsFor(setShownId)} rows=${data.messages} rowKey=${(letter) => letter.letterId} />`}
        <nav class="pager" aria-label="Pages of dead letters">
          ${cursors.length > 1 && html`<button type="button" onClick=${() => setCursors(cursors.slice(0, -1))}>Previous</button>`}
          ${data.nextCursor && html`<button type="button" onClick=${() => setCursors([...cursors, data.nextCursor])}>Next</button>`}
        </nav>
      `}
    <//>
    ${shownId && html`<${LetterDialog} id=${shownId} onClose=${close} onChange=${afterChange} />`}
  `;
}

const columnsFor = (show) => [
  { key: "letterId", label: "Id", render: (letter) => html`<button type="button" class="small" onClick=${() => show(letter.letterId, { push: true })}>${letter.letterId}</button>` },
  { key: "queue", label: "Queue", render: (letter) => html`<a href=${`/console/queues/${encodeURIComponent(letter.queue)}`}>${letter.queue}</a>` },
  { key: "group", label: "Group", render: (letter) => (letter.kind === "run" ? "run queue" : letter.consumerGroup ?? "deleted") },
  { key: "partition", label: "Partition", render: (letter) => letter.partition ?? "–" },
  { key: "failedAt", label: "Died", render: (letter) => html`<${Time} value=${letter.failedAt} />` },
  { key: "attempts", label: "Attempts", align: "end", render: (letter) => formatCount(letter.totalAttempts) },
  { key: "error", label: "Error", className: "wrap", render: (letter) => firstLine(letter.errorMessage) },
];

const firstLine = (error) => (error ?? "").split("\n").find((line) => line.trim()) ?? "no error was given";

function LetterDialog({ id, onClose, onChange }) {
  const letter = useData((signal) => fetchDeadLetter(id, signal), [id]);
  return html`
    <${Dialog} title=${`Dead letter ${id}`} className="wide" onClose=${onClose}>
      <${DataState} state=${letter}>${(data) => html`<${Letter} letter=${data} onChange=${onChange} />`}<//>
    <//>
  `;
}

function Letter({ letter, onChange }) {
  const { can } = useSession();
  const requeue = async () => {
    await requeueDeadLetter(letter.letterId);
    onChange();
    return "The message is at the end of its partition again.";
  };
  const remove = async () => {
    const question = { title: "Delete this dead letter?", text: "It cannot be restored.", action: "Delete", isDangerous: true };
    if (!(await confirm(question))) return undefined;
    await deleteDeadLetter(letter.letterId);
    onChange();
    return "The dead letter is deleted.";
  };
  const isRun = letter.kind === "run";
  const facts = [
    ["Queue", letter.queue],
    ["Partition", isRun ? "–" : `${letter.partition}, offset ${letter.offset}`],
    ["Consumer group", isRun ? "run queue" : letter.consumerGroup ?? "deleted"],
    ["Transaction id", letter.transactionId],
    ["Trace id", letter.traceId ?? "–"],
    ["Died", html`<${Time} value=${letter.failedAt} isExact />`],
    ["First enqueued", html`<${Time} value=${letter.firstEnqueuedAt} isExact />`],
    ["Times dead", letter.timesDead ?? "–"],
    ["Attempts", `${letter.retryCount} since the last requeue, ${letter.totalAttempts} in all`],
  ];
  return html`
    <dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    <h3>Error</h3>
    <pre class="error-text" tabindex="0" role="region" aria-label="Error">${letter.errorMessage || "no error was given"}</pre>
    <h3>Payload</h3>
    ${letter.dataProblem ? html`<p class="hint">${letter.dataProblem}</p>` : html`<${JsonView} value=${letter.data} />`}
    ${can("operate") &&
    html`<footer class="dialog-actions">
      <${ActionButton} className="danger" action=${remove}>Delete…<//>
      <${ActionButton} className="primary" action=${requeue}>Requeue<//>
    </footer>`}
  `;
}
