import { test } from "./vendor/zora-5.2.0/zora.js";
import { lifeSpan } from "/static/js/pages/message/life_chart.js";
import { describeEvent } from "/static/js/pages/message/time_line.js";
import { describeProgress, fromTimeField, readFilters, toTimeField } from "/static/js/pages/messages/search_filters.js";

test("the progress of a search has the unit of its total", (t) => {
  t.eq(describeProgress({ examined: 2_100_000, total: 10_000_000, totalIsExact: true }), "2.1 of 10 M looked at");
  t.eq(describeProgress({ examined: 3, total: 3, totalIsExact: true }), "3 of 3 looked at");
  t.eq(describeProgress({ examined: 500, total: 40_000, totalIsExact: false }), "0.5 of about 40 k looked at");
  t.eq(describeProgress({ examined: 12, total: null, totalIsExact: false }), "12 looked at");
});

test("filters are the known parameters of the URL that have a value", (t) => {
  t.eq(readFilters({ queue: "q", text: "", other: "x" }), { queue: "q" });
  t.eq(readFilters({ queue: "q", key: "$.a" }), { queue: "q" });
  t.eq(readFilters({ queue: "q", key: "$.a", value: "1" }), { queue: "q", key: "$.a", value: "1" });
});

test("a time field shows the time in the selected time zone", (t) => {
  t.eq(toTimeField("2026-01-02T03:04:05.000Z", "UTC"), "2026-01-02T03:04:05");
  t.eq(fromTimeField("2026-01-02T03:04:05", "UTC"), "2026-01-02T03:04:05.000Z");
  const local = toTimeField("2026-07-02T03:04:05.000Z", "local");
  t.eq(fromTimeField(local, "local"), "2026-07-02T03:04:05.000Z");
  t.eq([toTimeField("x", "UTC"), fromTimeField("", "UTC")], ["", ""]);
});

test("the chart of a message covers its events and not the future", (t) => {
  const events = [{ at: "2026-01-01T00:00:00.000Z" }, { at: "2026-01-01T01:00:00.000Z" }];
  const now = Date.parse("2026-01-01T01:02:00.000Z");
  t.eq(lifeSpan(events, now), { from: "2025-12-31T23:54:00.000Z", to: "2026-01-01T01:02:00.000Z" });
});

test("an event says what happened", (t) => {
  t.eq(describeEvent({ event: "failed", attempts: 2 }), "Failed, attempt 2");
  t.eq(describeEvent({ event: "dead", attempts: 1 }), "Dead after one attempt");
  t.eq(describeEvent({ event: "trace", traceEvent: "info" }), "Trace: info");
});
