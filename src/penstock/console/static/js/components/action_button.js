// A button that runs an action on the broker: it is busy meanwhile, and a message tells the result.

import { html, useState } from "../html.js";
import { reportUnauthorized } from "../session.js";
import { showToast } from "./toast.js";

/** `action()` returns a promise of the text to show, or of nothing. Its problem is shown to the user. */
export function ActionButton({ action, children, className = "", ...attributes }) {
  const [isBusy, run] = useAction(action);
  return html`
    <button type="button" class=${className} disabled=${isBusy} aria-busy=${isBusy} onClick=${run} ...${attributes}>
      ${children}
    </button>
  `;
}

/** Return whether the action runs, and the function that runs it. It returns whether the action succeeded. */
export function useAction(action) {
  const [isBusy, setBusy] = useState(false);
  const run = async (...args) => {
    if (isBusy) return false;
    setBusy(true);
    try {
      const text = await action(...args);
      if (typeof text === "string") showToast(text);
      return true;
    } catch (problem) {
      reportUnauthorized(problem);
      if (problem.name !== "ApiProblem") console.error(problem);
      showToast(problem.message, { kind: "problem" });
      return false;
    } finally {
      setBusy(false);
    }
  };
  return [isBusy, run];
}
