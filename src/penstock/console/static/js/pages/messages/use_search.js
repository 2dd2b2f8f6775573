// A running search: repeats its steps until enough messages match, it ends, or the user cancels it.

import { searchStep } from "../../api/messages.js";
import { useEffect, useRef, useState } from "../../html.js";
import { reportUnauthorized } from "../../session.js";

const PAGE_SIZE = 50;
const NOTHING = { status: "idle", messages: [], progress: null, cursor: null, indexedSince: null, problem: null };

/**
 * Search with `filters`, again when they change. `status` is "idle" (no filters), "running", "paused" (a page is full),
 * "cancelled", "failed" or "done". `resume()` goes on where the search stopped, `cancel()` ends the running step too.
 */
export function useSearch(filters) {
  const key = JSON.stringify(filters);
  const [state, setState] = useState(NOTHING);
  const running = useRef(null);

  async function run(start) {
    const abort = new AbortController();
    running.current = abort;
    let current = { ...start, status: "running", problem: null };
    setState(current);
    const target = current.messages.length + PAGE_SIZE;
    while (current.status === "running") {
      current = await next(current, filters, target, abort.signal);
      if (running.current !== abort) return;
      setState(current);
    }
  }
  const stop = () => {
    running.current?.abort();
    running.current = null;
  };

  useEffect(() => {
    if (Object.keys(filters).length > 0) run(NOTHING);
    else setState(NOTHING);
    return stop;
  }, [key]);

  return {
    ...state,
    resume: () => run(state),
    cancel() {
      stop();
      setState({ ...state, status: "cancelled" });
    },
  };
}

/** Return the state after one more step. */
async function next(state, filters, target, signal) {
  try {
    const step = await searchStep({ ...filters, cursor: state.cursor, limit: target - state.messages.length }, signal);
    const messages = [...state.messages, ...step.messages];
    const isFull = messages.length >= target;
    const status = step.nextCursor === null ? "done" : isFull ? "paused" : "running";
    return { status, messages, progress: step.progress, cursor: step.nextCursor, indexedSince: step.indexedSince, problem: null };
  } catch (problem) {
    if (signal.aborted) return { ...state, status: "cancelled" };
    reportUnauthorized(problem);
    return { ...state, status: "failed", problem };
  }
}
