// Live data by server-sent events. The stream is closed while the tab is hidden.

import { EventSourceParserStream } from "../vendor/eventsource-parser-3.1.1/stream.js";
import { problemOf, requestHeaders } from "./api.js";
import { useEffect, useRef, useState } from "./html.js";
import { onRefresh } from "./refresh.js";
import { reportUnauthorized } from "./session.js";

const MIN_RETRY_MS = 1_000;
const MAX_RETRY_MS = 15_000;

/**
 * Follow the stream at `url` and return the data of its last event. After a failure, `data` stays the last data and
 * `problem` says what happened, until events arrive again.
 */
export function useLive(url) {
  const [state, setState] = useState({ data: null, problem: null, isLoading: true });
  const currentUrl = useRef(url);

  useEffect(() => {
    currentUrl.current = url;
    setState((previous) => ({ ...previous, isLoading: true }));
    return followStream(url, {
      onData: (data) => setState({ data, problem: null, isLoading: false }),
      onProblem: (problem) => setState((previous) => ({ ...previous, problem, isLoading: false })),
    });
  }, [url]);

  return state;
}

/** Read the stream until the returned function is called. A lost connection is opened again, more slowly each time. */
export function followStream(url, { onData, onProblem }) {
  let connection = null;
  let timer = 0;
  let retryMs = MIN_RETRY_MS;

  async function connect() {
    clearTimeout(timer);
    connection?.abort();
    if (document.hidden) return;
    connection = new AbortController();
    const { signal } = connection;
    try {
      await readEvents(url, signal, {
        onProblem,
        onData(data) {
          retryMs = MIN_RETRY_MS;
          onData(data);
        },
      });
    } catch (error) {
      if (signal.aborted) return;
      reportUnauthorized(error);
      onProblem(describeFailure(error));
    }
    if (signal.aborted) return;
    timer = setTimeout(connect, retryMs);
    retryMs = Math.min(MAX_RETRY_MS, retryMs * 2);
  }

  const ignoreRefresh = onRefresh(connect);
  document.addEventListener("visibilitychange", connect);
  connect();
  return () => {
    clearTimeout(timer);
    connection?.abort();
    ignoreRefresh();
    document.removeEventListener("visibilitychange", connect);
  };
}

/** The event `problem` says why there is no data now, and `end` why the broker ends the stream. */
async function readEvents(url, signal, { onData, onProblem }) {
  const response = await fetch(url, { headers: requestHeaders(), signal, cache: "no-store" });
  if (!response.ok) throw problemOf(response, await response.json().catch(() => null));
  const events = response.body.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream());
  const reader = events.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const data = JSON.parse(value.data);
    if (value.event === "end") throw problemOf(data, data);
    if (value.event === "problem") onProblem(problemOf(data, data));
    else onData(data);
  }
}

function describeFailure(error) {
  if (error.name === "ApiProblem") return error;
  return new Error("The connection to the broker was lost. The console connects again by itself.", { cause: error });
}
