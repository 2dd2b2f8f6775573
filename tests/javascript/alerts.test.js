import { test } from "./vendor/zora-5.2.0/zora.js";
import { channelFormOf, channelOf } from "/static/js/pages/alerts/channel_form.js";
import { chartColumns } from "/static/js/pages/alerts/rule_chart.js";
import { durationText, formOf, ruleOf, usesField } from "/static/js/pages/alerts/rule_form.js";
import { describeTimes, silenceFormOf, silenceOf } from "/static/js/pages/alerts/silence_form.js";
import { timelineOf } from "/static/js/pages/alerts/timeline.js";
import { describeCondition, formatValue } from "/static/js/pages/alerts/wording.js";

const LATENCY = { type: "LATENCY", unit: "ms", threshold: null, operators: ["GREATER_THAN", "LESS_THAN"], statistics: ["avg", "p95"], windowMinutes: 5, minSamples: 1, fields: [], isOfEnvironment: false, canBeTested: true };
const STALE = { ...LATENCY, type: "PIPELINE_STALE", operators: ["GREATER_THAN"], statistics: [], isOfEnvironment: true, canBeTested: false };
const STALLED = { ...LATENCY, type: "STALLED", unit: "flag", fields: ["form"] };

test("the form of a rule describes the same rule", (t) => {
  const rule = { name: "slow", type: "LATENCY", queue: "orders*", threshold: 90_000, statistic: "p95", labels: { team: "a" }, channels: ["ops"], severity: "critical", enabled: true };
  t.eq(formOf(rule, LATENCY).threshold, "90s");
  t.eq(ruleOf(formOf(rule, LATENCY), LATENCY), rule);
});

test("a number that is none stays text, so that the broker can say what is wrong", (t) => {
  const form = formOf({ name: "slow", type: "LATENCY" }, LATENCY);
  t.eq(ruleOf({ ...form, threshold: "soon" }, LATENCY).threshold, "soon");
  t.eq(ruleOf({ ...form, threshold: "2 m" }, LATENCY).threshold, 120_000);
  t.eq(ruleOf({ ...form, threshold: "1,500" }, LATENCY).threshold, 1_500);
});

test("fields that the type does not use are left out", (t) => {
  const form = { ...formOf({ name: "x", type: "PIPELINE_STALE" }, STALE), queue: "orders", windowMinutes: "5", statistic: "p95" };
  t.eq(Object.keys(ruleOf(form, STALE)).sort(), ["channels", "enabled", "labels", "name", "severity", "type"]);
  t.notOk(usesField(STALLED, "threshold"));
  t.ok(usesField(STALLED, "form"));
});

test("durations and conditions are short texts", (t) => {
  t.eq([0, 1_500, 90_000, 7_200_000].map(durationText), ["0ms", "1500ms", "90s", "2h"]);
  t.eq(describeCondition({ type: "LATENCY", statistic: "p95", threshold: 30_000 }, LATENCY), "p95 > 30 s for 5 min");
  t.eq(describeCondition({ type: "STALLED" }, STALLED), "either for 5 min");
  t.eq([formatValue(0.25, "share"), formatValue(null, "ms"), formatValue(1, "flag")], ["25 %", "–", "yes"]);
});

test("a silence lasts from its start, and its form describes the same silence", (t) => {
  const now = Date.parse("2026-01-31T12:00:00Z");
  const silence = silenceOf({ ...silenceFormOf({ queue: "orders" }), comment: " x " }, now);
  t.eq(silence, { comment: "x", queue: "orders", endsAt: "2026-01-31T14:00:00.000Z" });
  const recurrence = { days: ["mon"], from: "22:00", to: "06:00", timeZone: "Europe/Berlin" };
  const stored = { id: "1", comment: "", startsAt: "2026-02-01T10:00:00.000Z", endsAt: "2026-02-02T10:00:00.000Z", recurrence };
  t.eq(silenceOf(silenceFormOf(stored), now), { comment: "", startsAt: stored.startsAt, endsAt: stored.endsAt, recurrence });
  t.eq(describeTimes({ recurrence }, String), "mon 22:00–06:00 (Europe/Berlin), until it is deleted");
});

test("a channel has the fields of its kind alone, and no empty secret", (t) => {
  const form = { ...channelFormOf(), name: "mail", kind: "email", url: "https://example.com", host: "smtp", port: "25", to: "a@x, b@x", password: "" };
  t.eq(channelOf(form), { name: "mail", kind: "email", enabled: true, host: "smtp", port: 25, to: ["a@x", "b@x"] });
});

test("the events of an incident are in order of time", (t) => {
  const at = (minute) => `2026-01-31T12:0${minute}:00Z`;
  const events = timelineOf({
    openedAt: at(1), resolvedAt: at(9), resolution: "cleared", acknowledgedAt: at(5), acknowledgedBy: "Ada",
    queues: [{ queue: "orders", firedAt: at(1), resolvedAt: at(8) }],
    notes: [{ at: at(6), author: "Ada", text: "restarted" }],
    notices: [{ createdAt: at(1), sentAt: at(2), transition: "opened", channel: "ops", state: "sent", attempts: 1 }],
  });
  t.eq(events.map(({ kind }) => kind), ["opened", "queue", "delivery", "acknowledged", "note", "queue", "resolved"]);
});

test("the chart of a rule has no threshold for a condition without one", (t) => {
  const test = { series: { from: "1970-01-01T00:01:00Z", stepSeconds: 60, values: [1, null] }, threshold: 5, clearThreshold: 5, unit: "messages" };
  t.eq(chartColumns(test), [[60, 120], [1, null], [5, 5], [null, null]]);
  t.eq(chartColumns({ ...test, unit: "flag" })[2], [null, null]);
});
