import { test } from "./vendor/zora-5.2.0/zora.js";
import { followStream } from "/static/js/live.js";
import { pushCommand } from "/static/js/pages/overview/first_steps.js";

/** Replace `fetch` by streams that the test writes to. */
function fakeStreams() {
  const realFetch = window.fetch;
  const opened = [];
  window.fetch = async (url, { signal }) => {
    const stream = { url, signal };
    const body = new ReadableStream({
      start(controller) {
        stream.send = (text) => controller.enqueue(new TextEncoder().encode(text));
        signal.addEventListener("abort", () => controller.error(signal.reason));
      },
    });
    opened.push(stream);
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  };
  return { opened, restore: () => (window.fetch = realFetch) };
}

async function eventually(condition) {
  for (let i = 0; i < 500 && !condition(); i++) await new Promise((resolve) => setTimeout(resolve, 10));
  return condition();
}

// One test after the other: they share `fetch` and `document.hidden`.
test("a live stream", async (t) => {
  await t.test("delivers snapshots, reports problems and goes on", deliversSnapshots);
  await t.test("is opened again if the broker ends it", opensAgain);
  await t.test("is closed while the tab is hidden", pausesWhenHidden);
});

async function deliversSnapshots(t) {
  const { opened, restore } = fakeStreams();
  const [data, problems] = [[], []];
  const stop = followStream("/live", { onData: (d) => data.push(d), onProblem: (p) => problems.push(p.message) });
  await eventually(() => opened.length === 1);
  opened[0].send('retry: 1\n\nevent: snapshot\ndata: {"n": 1}\n\n: heartbeat\n\n');
  opened[0].send('event: problem\ndata: {"status": 404, "title": "Unknown queue", "detail": "gone"}\n\n');
  opened[0].send('event: snapshot\ndata: {"n": 2}\n\n');
  await eventually(() => data.length === 2);
  t.eq(data, [{ n: 1 }, { n: 2 }]);
  t.eq(problems, ["gone"]);
  stop();
  restore();
}

async function opensAgain(t) {
  const { opened, restore } = fakeStreams();
  const problems = [];
  const stop = followStream("/live", { onData: () => {}, onProblem: (p) => problems.push(p.status) });
  await eventually(() => opened.length === 1);
  opened[0].send('event: end\ndata: {"status": 503, "detail": "This broker is stopping."}\n\n');
  t.ok(await eventually(() => opened.length === 2));
  t.eq(problems, [503]);
  stop();
  restore();
}

async function pausesWhenHidden(t) {
  const { opened, restore } = fakeStreams();
  const stop = followStream("/live", { onData: () => {}, onProblem: () => {} });
  await eventually(() => opened.length === 1);
  let isHidden = true;
  Object.defineProperty(document, "hidden", { configurable: true, get: () => isHidden });
  document.dispatchEvent(new Event("visibilitychange"));
  t.ok(opened[0].signal.aborted);
  t.eq(opened.length, 1);
  isHidden = false;
  document.dispatchEvent(new Event("visibilitychange"));
  t.ok(await eventually(() => opened.length === 2), "it connects again when it is shown");
  delete document.hidden;
  stop();
  restore();
}

test("the first command has a token if the broker requires one", (t) => {
  t.notOk(pushCommand("http://h", true).includes("Bearer"));
  t.ok(pushCommand("http://h", false).includes("$PENSTOCK_TOKEN"));
});
