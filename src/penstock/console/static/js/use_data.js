// Data of the broker that a component shows and keeps up to date.

import { useCallback, useEffect, useRef, useState } from "./html.js";
import { onRefresh } from "./refresh.js";
import { reportUnauthorized } from "./session.js";

const INITIAL = { data: null, problem: null, isLoading: true };

/**
 * Fetch data with `fetcher(signal)`, again when `deps` change and every `intervalMs` while the tab is visible.
 *
 * After a failure, `data` stays the last data and `problem` says what happened, until a fetch succeeds. While `deps`
 * have changed and their data is not here yet, `isLoading` is true and `data` belongs to the previous ones.
 */
export function useData(fetcher, deps = [], { intervalMs = 0 } = {}) {
  const [state, setState] = useState(INITIAL);
  const fetcherRef = useRef(fetcher);
  fetcherRef.current = fetcher;
  const wake = useRef(() => {});

  useEffect(() => {
    setState((previous) => ({ ...previous, isLoading: true }));
    const loop = startLoop((signal) => fetcherRef.current(signal), setState, intervalMs);
    wake.current = loop.wake;
    const ignoreRefresh = onRefresh(loop.wake);
    return () => {
      ignoreRefresh();
      loop.stop();
    };
  }, [...deps, intervalMs]);

  const refresh = useCallback(() => wake.current(), []);
  return { ...state, refresh };
}

/** Fetch now, then every `intervalMs` from start to start: never two fetches at once, none while the tab is hidden. */
function startLoop(fetcher, setState, intervalMs) {
  const abort = new AbortController();
  let isRunning = false;
  let runAgain = false;
  let timer = 0;

  async function run() {
    clearTimeout(timer);
    if (document.hidden && intervalMs) return;
    if (isRunning) {
      runAgain = true;
      return;
    }
    isRunning = true;
    const started = performance.now();
    do {
      runAgain = false;
      await fetchOnce(fetcher, setState, abort.signal);
    } while (runAgain && !abort.signal.aborted);
    isRunning = false;
    if (intervalMs && !abort.signal.aborted) {
      timer = setTimeout(run, Math.max(0, intervalMs - (performance.now() - started)));
    }
  }

  const onVisible = () => intervalMs && !document.hidden && run();
  document.addEventListener("visibilitychange", onVisible);
  run();
  return {
    wake: run,
    stop() {
      clearTimeout(timer);
      abort.abort();
      document.removeEventListener("visibilitychange", onVisible);
    },
  };
}

async function fetchOnce(fetcher, setState, signal) {
  try {
    const data = await fetcher(signal);
    if (!signal.aborted) setState({ data, problem: null, isLoading: false });
  } catch (problem) {
    if (signal.aborted) return;
    reportUnauthorized(problem);
    if (problem.name !== "ApiProblem") console.error(problem);
    setState((previous) => ({ ...previous, problem, isLoading: false }));
  }
}
