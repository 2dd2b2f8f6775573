import { test } from "./vendor/zora-5.2.0/zora.js";
import { toColumns, toDrawing } from "/static/js/series.js";

const at = (s) => new Date(Date.UTC(2026, 0, 1) + s * 1_000).toISOString();

/** A response with a point of 5 seconds per `[depth, carried]`, and ten pushed messages in each. */
function metrics(depths, delayed = []) {
  const end = at(5 * depths.length);
  const repeat = (value) => depths.map(() => value);
  return {
    period: { start: at(0), end },
    resolution: "5s",
    freshness: end,
    completeness: { complete_until: end, lost: 0 },
    columns: {
      timestamp: depths.map((_, i) => at(5 * i)),
      throughput: { enqueued: repeat(10), dequeued: repeat(5), completed: repeat(5) },
      queue_depth: { max: depths.map(([depth]) => depth), last: depths.map(([depth]) => depth) },
      delayed: { max: depths.map((_, i) => delayed[i] ?? null), last: depths.map((_, i) => delayed[i] ?? null) },
      latency: { avg_wait_ms: repeat(20), p95_wait_ms: repeat(40), max_age_ms: repeat(90) },
      failures: { nack: repeat(1), dlq: repeat(0), ttl_expired: repeat(0) },
      carried: depths.map(([, carried]) => carried),
      complete: repeat(true),
    },
  };
}

const draw = (response, maxBuckets = 100) => toDrawing(toColumns(response), maxBuckets);
const observed = (count) => Array.from({ length: count }, () => [1, false]);

test("carried and observed depth are separate lines that meet", (t) => {
  const drawing = draw(metrics([[2, false], [2, true], [2, true], [5, false]]));
  t.eq(drawing.depth, [2, null, 2, 5]);
  t.eq(drawing.carried, [2, 2, 2, null]);
  t.eq(drawing.observedOldest, [90, null, 90, 90]);
  t.eq(drawing.carriedOldest, [90, 90, 90, null]);
});

test("merged points keep peaks", (t) => {
  const drawing = draw(metrics([[2, false], [9, false], [2, true], [3, true]], [4, 0, 0, 1]), 2);
  t.eq(drawing.step, 10);
  t.eq(drawing.waiting, [9, 3]);
  t.eq(drawing.delayed, [4, 1]);
  t.eq(drawing.isCarried, [false, true]);
  t.eq(drawing.enqueued, [2, 2]);
});

test("delayed tasks have a line only if some exist", (t) => {
  t.eq(draw(metrics(observed(2), [0, 0])).delayed, [null, null]);
  t.eq(draw(metrics(observed(2), [0, 6])).delayed, [0, 6]);
});

test("an open bucket has no rate, a long one that of its known part", (t) => {
  const short = metrics(observed(3));
  short.completeness.complete_until = at(14);
  t.eq(draw(short).enqueued, [2, 2, null]);
  const long = metrics(observed(1));
  Object.assign(long, { resolution: "1m", period: { start: at(0), end: at(40) } });
  long.completeness.complete_until = at(40);
  t.eq(draw(long).enqueued, [0.25]);
});

test("what is not counted, or was lost, is unknown", (t) => {
  const response = metrics([[1, false], [1, false], ...Array(6).fill([1, true])], Array(8).fill(3));
  response.completeness = { complete_until: at(24), lost: 7 };
  for (const i of [1, 4, 5, 6, 7]) response.columns.complete[i] = false;
  const drawing = draw(response);
  t.eq(drawing.enqueued, [2, null, 2, 2, null, null, null, null]);
  t.eq(drawing.isUnknown, [false, true, false, false, true, true, true, true]);
  t.eq(drawing.carried, [null, null, 1, 1, null, null, null, null], "a repeated depth means nothing there");
  t.eq(drawing.p95Wait, [40, null, 40, 40, null, null, null, null]);
});

test("a merged point with a loss is unknown", (t) => {
  const response = metrics(observed(4));
  response.columns.complete[1] = false;
  const drawing = draw(response, 2);
  t.eq(drawing.isUnknown, [true, false]);
  for (const column of ["enqueued", "waiting", "avgWait", "p95Wait"]) {
    t.eq(drawing[column][0], null, column);
    t.ok(drawing[column][1] !== null, column);
  }
});

test("without completeness nothing after the newest event is known", (t) => {
  const response = metrics(observed(4));
  response.completeness.complete_until = null;
  response.freshness = at(11);
  t.eq(draw(response).enqueued, [2, 2, null, null]);
});
