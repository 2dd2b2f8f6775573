// Runs one task over and over: never two at once, never while the tab is hidden.

/**
 * Call `task(signal)` every `everyMs`, counted from start to start.
 * `wake()` runs it as soon as the current run ends; `restart()` also abandons the current run.
 */
export function poll(task, everyMs) {
  let abort = new AbortController();
  let running = false;
  let again = false;
  let timer = 0;

  async function run() {
    clearTimeout(timer);
    if (document.hidden) return;
    if (running) {
      again = true;
      return;
    }
    running = true;
    again = false;
    const started = performance.now();
    try {
      await task(abort.signal);
    } catch (error) {
      if (error.name !== "AbortError") console.error(error);
    }
    running = false;
    const rest = again ? 0 : Math.max(0, everyMs - (performance.now() - started));
    timer = setTimeout(run, rest);
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
