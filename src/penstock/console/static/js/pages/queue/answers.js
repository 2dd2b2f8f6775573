// The four questions and their answers, in one row.

import { html } from "../../html.js";

const QUESTIONS = [
  ["backedUp", "Backed up?"],
  ["howLong", "How long is the wait?"],
  ["atLimit", "At the limit?"],
  ["stuck", "Stuck?"],
];

export const Answers = ({ answers }) => html`
  <dl class="answers">
    ${QUESTIONS.map(([key, question]) => html`<${Answer} key=${key} question=${question} ...${answers[key]} />`)}
  </dl>
`;

const Answer = ({ question, kind, text, figure, detail }) => html`
  <div class="answer ${kind}">
    <dt>${question}</dt>
    <dd>
      <b>${text}</b>
      <span class="figure">${figure}</span>
      <small>${detail}</small>
    </dd>
  </div>
`;
