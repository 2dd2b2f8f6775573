import { test } from "./vendor/zora-5.2.0/zora.js";
import { mergeNear, toSpan } from "/static/js/chart_marks.js";
import { widen } from "/static/js/pages/queue/charts.js";
import { recentPartitions } from "/static/js/pages/queue/messages.js";
import { changedOptions } from "/static/js/pages/queue/options.js";
import { jsonProblem } from "/static/js/pages/queue/push_dialog.js";
import { toSeekTarget } from "/static/js/pages/queue/seek_dialog.js";
import { answerQuestions, depthTrend, mergeLive } from "/static/js/pages/queue/verdicts.js";

const STEP_S = 5;

/** A series with these depths, the last one now. Other columns have one value each. */
function series(waiting, { p95 = null, out = 0, isBehind = false } = {}) {
  const column = (value) => waiting.map(() => value);
  return {
    step: STEP_S,
    x: waiting.map((_, i) => i * STEP_S),
    isBehind,
    waiting,
    enqueued: column(1),
    completed: column(out),
    p95Wait: column(p95),
    avgWait: column(p95),
    oldest: column(null),
  };
}

const environment = { concurrency: null, burst: 1, running: 0 };
const runQueue = { kind: "run", depth: 0, delayed: 0, running: 0, concurrency: null, paused: false, oldestAgeMs: 0, environment };
const group = { name: "g", activeLeases: 1, partitionsWithLag: 2, maxTimeLag: 3 };
const durable = { kind: "durable", depth: 10, running: 1, paused: false, partitionCount: 4, consumerGroups: [group] };
const answersOf = (state, columns = null, worst = undefined) => {
  const answers = answerQuestions(state, columns, worst);
  return Object.fromEntries(Object.entries(answers).map(([key, { text, kind }]) => [key, `${text} (${kind})`]));
};

test("an empty queue is neither backed up nor stuck", (t) => {
  const answers = answersOf(runQueue, series([0, 0, 0]));
  t.eq(answers, { backedUp: "No (ok)", howLong: "No wait (ok)", atLimit: "No limit (ok)", stuck: "No (ok)" });
});

test("a backlog grows, drains or is steady", (t) => {
  const trend = (waiting, depth) => depthTrend(series(waiting), depth)?.change ?? null;
  t.eq(trend([10, 20, 30], 40), 30);
  t.eq(trend([40, 30, 20], 10), -30);
  t.eq(trend([1_000, 1_000], 1_050), 0, "less than a tenth is no trend");
  t.eq(trend([null, 5], 9), null, "one point is no trend");
  t.eq(trend([10, 10, null, null], 30), 20, "the newest points may be unknown");
  t.eq(answersOf({ ...runQueue, depth: 40 }, series([10, 20])).backedUp, "Yes, growing (warn)");
  t.eq(answersOf({ ...runQueue, depth: 10 }, series([90, 80])).backedUp, "Draining (ok)");
  t.eq(answersOf({ ...runQueue, depth: 10 }).backedUp, "Unknown (unknown)");
});

test("the wait is that of the last minute, or the age of the oldest", (t) => {
  t.eq(answersOf(durable, series([10, 10], { p95: 1_500 })).howLong, "1.5 s (ok)");
  t.eq(answersOf(durable, series([10, 10], { p95: 90_000 })).howLong, "1m 30s (warn)");
  t.eq(answersOf(durable, series([10, 10])).howLong, "3.0 s so far (unknown)");
});

test("the limit of the queue, of the environment, a pause and missing consumers are told apart", (t) => {
  const limited = { ...runQueue, depth: 5, concurrency: 4 };
  t.eq(answersOf({ ...limited, running: 4 }).atLimit, "Yes (warn)");
  t.eq(answersOf({ ...limited, running: 1 }).atLimit, "No (ok)");
  t.eq(answersOf({ ...limited, running: 4, paused: true }).atLimit, "Paused (warn)");
  const full = { concurrency: 10, burst: 2, running: 20 };
  t.eq(answersOf({ ...limited, running: 1, environment: full }).atLimit, "Yes, the environment's (warn)");
  t.eq(answersOf({ ...runQueue, running: 10, environment: { ...full, running: 10 } }).atLimit, "Yes (warn)");
  t.eq(answersOf(durable).atLimit, "No (ok)");
  const idle = { ...durable, consumerGroups: [{ ...group, activeLeases: 0 }] };
  t.eq(answersOf(idle).atLimit, "No (ok)", "without metrics it may just be between two pops");
  t.eq(answersOf(idle, series([10, 10])).atLimit, "No leases (warn)");
  t.eq(answersOf({ ...durable, consumerGroups: [] }).atLimit, "No consumers (bad)");
  t.eq(answersOf({ ...durable, consumerGroups: [{ ...group, activeLeases: 2 }] }).atLimit, "No (ok)");
  t.eq(answersOf({ ...durable, partitionCount: 2, consumerGroups: [{ ...group, activeLeases: 2 }] }).atLimit, "All partitions leased (ok)");
});

test("figures and causes of the live stream replace those of the state", (t) => {
  const queue = { known: true, depth: 4, running: null, delayed: null, dead: 2, cappedBy: "no_consumers", capDetail: "None." };
  const asOf = "2026-01-01T00:00:05.000Z";
  const merged = mergeLive(durable, { asOf, queue });
  t.eq([merged.depth, merged.running, merged.dead], [4, 1, 2]);
  t.eq(answersOf(merged).atLimit, "No consumers (bad)");
  t.eq(answersOf(mergeLive(durable, { asOf, queue: { ...queue, cappedBy: "blocked_partition" } })).stuck, "Yes (bad)");
  t.eq(mergeLive({ ...durable, asOf: "2026-01-01T00:00:06.000Z" }, { asOf, queue }).depth, 10, "the state is newer");
  t.eq(mergeLive(durable, null), durable);
});

test("an old message is stuck if nothing is finished", (t) => {
  const old = { ...durable, consumerGroups: [{ ...group, maxTimeLag: 900 }] };
  t.eq(answersOf(old, series([10, 10])).stuck, "Yes (bad)");
  t.eq(answersOf(old, series([10, 10], { isBehind: true })).stuck, "Perhaps (warn)", "the metrics are behind");
  t.eq(answersOf({ ...old, paused: true }).stuck, "Yes (bad)");
  t.eq(answersOf(old, series([10, 10], { out: 2 })).stuck, "Perhaps (warn)");
  t.eq(answersOf(old, series([10, 10], { out: 2, p95: 200_000 })).stuck, "No (ok)", "all wait that long");
  const worst = { partition_name: "p7", consumer_group: "__QUEUE_MODE__" };
  t.ok(answerQuestions(old, series([10, 10]), worst).stuck.detail.endsWith("Partition p7, queue mode."));
});

test("annotations are moments or spans, and close flags become one", (t) => {
  const at = "2026-01-01T00:00:10Z";
  const second = Date.parse(at) / 1_000;
  t.eq(toSpan({ at, end: null, kind: "deploy", text: "v1", subject: "local" }, 9e9), { from: second, to: second, kind: "deploy", text: "deploy: v1" });
  t.eq(toSpan({ at, end: null, ongoing: true, kind: "incident", text: "x" }, second + 5).to, second + 5);
  t.eq(mergeNear([{ left: 50, span: 2 }, { left: 10, span: 0 }, { left: 12, span: 1 }]), [{ left: 10, spans: [0, 1] }, { left: 50, spans: [2] }]);
});

test("zooming out doubles the span and ends now", (t) => {
  t.eq(widen({ start: 100, end: 200 }, 1e9), [50_000, 250_000]);
  t.eq(widen({ start: 100, end: 200 }, 210_000), [50_000, 210_000]);
});

test("the forms send what the user changed", (t) => {
  t.eq(changedOptions({ ttl: 0, retryLimit: 3 }, { ttl: 0, retryLimit: 5 }), { retryLimit: 5 });
  t.eq(changedOptions({ indexKeys: ["$.a"] }, { indexKeys: ["$.a"] }), {});
  t.eq(changedOptions({ indexKeys: [] }, { indexKeys: ["$.a"] }), { indexKeys: ["$.a"] });
  t.eq(toSeekTarget("end", ""), { toEnd: true });
  t.eq(toSeekTarget("start", ""), { timestamp: "1970-01-01T00:00:00Z" });
  t.eq(jsonProblem('{"a": 1}'), null);
  t.ok(jsonProblem("{").startsWith("This is not JSON"));
  const partitions = [{ name: "a", lastPushAt: null }, { name: "b", lastPushAt: "2026-01-01T00:00:00Z" }, { name: "c", lastPushAt: "2026-01-02T00:00:00Z" }];
  t.eq(recentPartitions(partitions), ["c", "b"]);
});
