import { test } from "./vendor/zora-5.2.0/zora.js";
import { describeReason, toLoadRows } from "/static/js/pages/operations/load_rows.js";
import { averageParts, chartTop, durationPercentile, toBars } from "/static/js/pages/pipeline/batch_parts.js";
import { averageBatchSize, batchSizes, combineBatching, highestOf } from "/static/js/pages/workers/recent.js";
import { toPlainSeries } from "/static/js/plain_series.js";

const batch = (durationMs, parts = {}) => ({ durationMs, planMs: 0, readMs: 0, insertMs: 0, checkpointMs: 0, ...parts });
const rounded = (values) => values.map((value) => +value.toFixed(3));

test("the parts of a batch and the rest make up its bar", (t) => {
  const [bar] = toBars([batch(100, { planMs: 10, readMs: 50, insertMs: 20, checkpointMs: 5 })]);
  t.eq(rounded(bar.parts.map(({ height }) => height)), [0.1, 0.5, 0.2, 0.05, 0.15]);
  t.eq(rounded(bar.parts.map(({ y }) => y)), [0.9, 0.4, 0.2, 0.15, 0]);
  t.eq(bar.isCut, false);
});

test("a batch that took far longer than the others is cut", (t) => {
  const batches = [batch(60_000, { readMs: 60_000 }), ...Array.from({ length: 20 }, () => batch(100, { readMs: 50 }))];
  t.eq(chartTop(batches), 200);
  const [first, second] = toBars(batches);
  t.eq([first.isCut, second.isCut], [true, false]);
  t.ok(first.parts.every(({ y, height }) => y >= 0 && y + height <= 1), "a bar stays inside the chart");
  t.eq(second.parts[1].height, 0.25);
});

test("averages leave out times that Spark has forgotten", (t) => {
  const batches = [batch(10, { planMs: null }), batch(10, { planMs: 4 })];
  t.eq(averageParts(batches).find(({ key }) => key === "planMs").ms, 4);
  t.eq(averageParts([batches[0]]).find(({ key }) => key === "planMs").ms, null);
  t.eq([durationPercentile([], 0.5), durationPercentile([batch(3), batch(1), batch(2)], 0.5)], [null, 2]);
});

test("seconds without a batch have no batch size", (t) => {
  const recent = { batches: [0, 2, 1], batchRequests: [0, 6, 1] };
  t.eq(batchSizes(recent), [null, 3, 1]);
  t.eq(averageBatchSize(recent), 7 / 3);
  t.eq(averageBatchSize({ batches: [0], batchRequests: [0] }), null);
  t.eq([highestOf([9, 1, 2], 2), highestOf([], 2)], [2, null]);
});

test("the batches of all processes are added", (t) => {
  const figures = { requests: 4, items: 8, batches: 2, averageMs: 5, failures: 0, pending: 1, inFlight: 0 };
  const [row] = combineBatching([{ batching: { push: figures } }, { batching: { push: { ...figures, batches: 6, averageMs: 1 } } }]);
  t.eq([row.operation, row.requests, row.batches, row.busyMs / row.batches, row.pending], ["push", 8, 8, 2, 2]);
});

test("load is listed by kind of request and process, and says what an outage means", (t) => {
  const load = { operations: { push: { load: 0.1 }, pop: { load: 0.2 } } };
  const rows = toLoadRows([{ worker: 1, load }, { worker: 0, load }]);
  t.eq(rows.map(({ kind, worker }) => `${kind} ${worker}`), ["push 0", "push 1", "pop 0", "pop 1"]);
  const [push, pop] = toLoadRows([{ worker: 0, load, databaseOutageSeconds: 3 }], true);
  t.eq([push.decision, pop.decision, pop.reason], ["journal", "refuse", "no_database"]);
  t.eq(describeReason("busy", "refuse", 100), "deferring would take too long");
  t.eq(describeReason("busy", "refuse", 0), "the load is above its threshold");
  t.eq(describeReason("new_reason", "refuse", 0), "new_reason");
});

test("a point that no process covers is unknown", (t) => {
  const series = toPlainSeries(
    {
      timeRange: { from: "2026-01-01T00:00:00Z", to: "2026-01-01T00:02:00Z" },
      interval: "1m",
      series: [
        { timestamp: "2026-01-01T00:00:00Z", coveredSeconds: 0, cpu: null },
        { timestamp: "2026-01-01T00:01:00Z", coveredSeconds: 60, cpu: 7 },
      ],
    },
    { cpu: (point) => point.cpu },
  );
  t.eq([series.step, series.end - series.start, series.isEmpty], [60, 120, false]);
  t.eq([series.isUnknown, series.cpu], [[true, false], [null, 7]]);
});
