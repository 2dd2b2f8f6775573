// What needs attention, the most urgent first: one line each says what, where and since when.

import { Section } from "../../components/page.js";
import { Time } from "../../components/time.js";
import { formatCount } from "../../format.js";
import { html } from "../../html.js";

export function Attention({ overview }) {
  const { status, attention } = overview;
  const total = attention.reduce((sum, section) => sum + section.total, 0);
  return html`
    <div class="attention">
      <p class="verdict ${status}" role="status">${describe(status, total)}</p>
      <div class="attention-sections">
        ${attention.map((section) => html`<${AttentionSection} key=${section.kind} section=${section} />`)}
      </div>
    </div>
  `;
}

function describe(status, total) {
  if (total === 0) return "Nothing needs attention: no incidents, no old work, no growing backlogs, no new dead letters.";
  const things = total === 1 ? "1 thing needs" : `${formatCount(total)} things need`;
  return `${things} attention${status === "critical" ? ", and some of it is critical" : ""}.`;
}

const SHOWN_WHEN_NARROW = 2; // as in overview.css

function AttentionSection({ section: { kind, title, items, total, link } }) {
  const isLinkNarrow = total === items.length; // a wide screen shows all items
  return html`
    <${Section} title=${title} className="attention-section" actions=${total > 1 && html`<span class="count">${formatCount(total)}</span>`}>
      <ul data-kind=${kind}>
        ${items.map((item) => html`<${AttentionItem} key=${item.where + item.link} item=${item} />`)}
      </ul>
      ${total > SHOWN_WHEN_NARROW && html`<p class="more ${isLinkNarrow ? "narrow-only" : ""}"><a href=${link}>Show all ${formatCount(total)}</a></p>`}
    <//>
  `;
}

const AttentionItem = ({ item: { what, where, since, severity, link } }) => html`
  <li class=${severity}>
    <a class="where" href=${link} title=${where}><span class="visually-hidden">${severity}: </span>${where}</a>
    <span class="what">${what}</span>
    <span class="since">${since && html`began <${Time} value=${since} />`}</span>
  </li>
`;
