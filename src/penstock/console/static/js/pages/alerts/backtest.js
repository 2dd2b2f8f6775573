// A test of a rule over the past: what it would have done, drawn over what it measured.

import { testRule } from "../../api/alerts.js";
import { useAction } from "../../components/action_button.js";
import { DataTable } from "../../components/data_table.js";
import { FilterSelect } from "../../components/filter_select.js";
import { Section } from "../../components/page.js";
import { Time } from "../../components/time.js";
import { formatDuration } from "../../format.js";
import { html, useState } from "../../html.js";
import { RuleChart } from "./rule_chart.js";

const PERIODS = [["1h", "last hour"], ["6h", "last 6 hours"], ["24h", "last 24 hours"], ["7d", "last 7 days"], ["30d", "last 30 days"]];
const RATES = [["", "no suggestion"], ["1/day", "at most 1 page a day"], ["1/week", "at most 1 page a week"], ["1/month", "at most 1 page a month"]];
const MAX_ROWS = 100;

/** `readRule()` returns the rule to test. `onThreshold(value)`, if there is one, takes a suggested threshold over. */
export function Backtest({ readRule, canBeTested, onThreshold }) {
  const [period, setPeriod] = useState("24h");
  const [atMost, setAtMost] = useState("");
  const [test, setTest] = useState(null);
  const [isBusy, run] = useAction(async () => {
    setTest(await testRule({ rule: readRule(), period, ...(atMost && { atMost }) }));
  });
  return html`
    <${Section} title="Backtest" className="backtest">
      ${canBeTested
        ? html`<div class="tools">
            <${FilterSelect} label="Period" value=${period} options=${PERIODS} onValue=${setPeriod} />
            <${FilterSelect} label="Suggested threshold" value=${atMost} options=${RATES} onValue=${setAtMost} />
            <button type="button" aria-busy=${isBusy} disabled=${isBusy} onClick=${run}>${isBusy ? "Testing…" : "Backtest"}</button>
          </div>`
        : html`<p class="hint">Rules of this type measure what has no history, so they cannot be tested over the past.</p>`}
      <div role="status">${test && html`<${Result} test=${test} onThreshold=${onThreshold} />`}</div>
    <//>
  `;
}

function Result({ test, onThreshold }) {
  return html`
    <p class="sentence"><b>${test.rule}</b> ${withoutTimes(test.sentence)}.</p>
    <${Suggestion} suggestion=${test.suggestion} onThreshold=${onThreshold} />
    <${RuleChart} test=${test} />
    ${test.unknown.length > 0 && html`<p class="hint">Unknown: ${[...new Set(test.unknown.map(({ reason }) => reason))].join("; ")}.</p>`}
    <${FiredTable} incidents=${test.incidents} />
  `;
}

/** The sentence has times in UTC; the table below has them in the user's time zone. */
const withoutTimes = (sentence) => sentence.replace(/, at [^;]*;/, ";");

function Suggestion({ suggestion, onThreshold }) {
  if (!suggestion) return null;
  const threshold = suggestion.test?.threshold;
  return html`
    <p class="sentence">
      For at most ${suggestion.atMost.replace("/", " a ")}, ${withoutTimes(suggestion.sentence)}.
      ${threshold !== undefined && onThreshold && html` <button type="button" class="small" onClick=${() => onThreshold(threshold)}>Use ${suggestion.test.thresholdText}</button>`}
    </p>
  `;
}

function FiredTable({ incidents }) {
  if (incidents.length === 0) return null;
  const columns = [
    { key: "openedAt", label: "Fired", render: ({ openedAt }) => html`<${Time} value=${openedAt} isExact />` },
    { key: "duration", label: "Lasted", align: "end", render: (row) => (row.resolvedAt ? formatDuration(Date.parse(row.resolvedAt) - Date.parse(row.openedAt)) : "until the end") },
    { key: "peakText", label: "Worst", align: "end" },
    { key: "queues", label: "Queues", className: "wrap", render: ({ queues, queueCount }) => `${queues.slice(0, 3).map(({ name }) => name || "the environment").join(", ")}${queueCount > 3 ? ` and ${queueCount - 3} more` : ""}` },
    { key: "notified", label: "Notice", render: ({ notified, heldBackBy }) => (notified ? "sent" : `held back by ${heldBackBy}`) },
  ];
  const rows = incidents.slice(0, MAX_ROWS).map((incident, index) => ({ ...incident, index }));
  return html`<${DataTable} caption="When the rule would have fired" columns=${columns} rows=${rows} rowKey=${({ index }) => index} />`;
}
