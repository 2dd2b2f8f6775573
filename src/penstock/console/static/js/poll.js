// Runs a task periodically: never two runs at once, and never while the tab is hidden.

/**
 * Call `task(signal)` every `intervalMs`, measured from start to start.
 * `wake()` runs it as soon as the current run ends; `restart()` also aborts the current run.
 */
export function poll(task, intervalMs) {
  let abort = new AbortController();
  let running = false;
  let runAgain = false;
  let timer = 0;

  async function run() {
    clearTimeout(timer);
    if (document.hidden) return;
    if (running) {
      runAgain = true;
      return;
    }
    running = true;
    runAgain = false;
    const started = performance.now();
    try {
      await task(abort.signal);
    } catch (error) {
      if (error.name !== "AbortError") console.error(error);
    }
    running = false;
    const delayMs = runAgain ? 0 : Math.max(0, intervalMs - (performance.now() - started));
    timer = setTimeout(run, delayMs);
  }

  document.addEventListener("visibilitychange", run);
  run();
  return {
    wake: run,
    restart() {
      abort.abort();
      abort = new AbortController();
      run();
    },
  };
}
