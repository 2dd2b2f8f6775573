import { test } from "./vendor/zora-5.2.0/zora.js";
import { toBody } from "/static/js/pages/dead_letters/bulk_job_dialog.js";
import { describeConditions, describeState } from "/static/js/pages/dead_letters/group_state.js";
import { describeAction, describeDryRun, describeFilter, describeProgress, rateOf } from "/static/js/pages/dead_letters/job_texts.js";
import { searchJobUrl } from "/static/js/pages/dead_letters/job_url.js";

const job = {
  kind: "requeue",
  subject: "dead_letters",
  state: "running",
  filter: { queue: "orders", errorGroup: "5f3c0000-aaaa" },
  changed: 20,
  skipped: 0,
  total: 40,
  totalIsExact: true,
  startedAt: "2026-11-16T20:00:00Z",
  finishedAt: null,
};

test("the state of a group says what ends it", (t) => {
  t.eq(describeConditions({ time: null, count: 100, ratePerHour: 20 }), "until 100 more dead letters, or until more than 20 dead letters in one hour");
  t.eq(describeConditions(null), "without an end");
  t.eq(describeState({ state: "back_again", returnedFrom: "resolved" }), "Dead letters came after it was resolved.");
  t.eq(describeState({ state: "ignored", ignoredUntil: { count: 3 } }), "Ignored until 3 more dead letters.");
});

test("a job says what it does, to what, and how far it is", (t) => {
  t.eq(describeAction(job), "Requeue dead letters");
  t.eq(describeFilter(job), "queue orders, error group 5f3c0000");
  t.eq(describeFilter({ filter: {} }), "all");
  t.eq(describeProgress(job), "20 of 40 requeued");
  const purge = { ...job, kind: "purge", subject: "messages", totalIsExact: false, skipped: 2 };
  t.eq(describeProgress(purge), "20 of at least 40 deleted, 2 skipped because they are leased");
  t.eq(rateOf(job, Date.parse("2026-11-16T20:00:10Z")), 2);
  t.eq(rateOf({ ...job, changed: 0 }), null);
});

test("a dry run says how many match", (t) => {
  t.eq(describeDryRun({ total: 0, totalIsExact: true }, "tasks"), "No tasks match.");
  t.eq(describeDryRun({ total: 7, totalIsExact: false }, "messages"), "At least 7 messages match.");
});

test("a new job has only the fields of its subject", (t) => {
  const fields = { subject: "tasks", kind: "purge", queue: "mail", consumerGroup: "g", taskState: "", reason: "x", ratePerSecond: "5" };
  t.eq(toBody(fields), { subject: "tasks", kind: "purge", queue: "mail", ratePerSecond: 5 });
  t.eq(toBody({ ...fields, subject: "messages", kind: "dead_letter" }), {
    subject: "messages",
    kind: "dead_letter",
    queue: "mail",
    consumerGroup: "g",
    reason: "x",
    ratePerSecond: 5,
  });
});

test("a search becomes a job if its filters can select the same messages", (t) => {
  t.eq(searchJobUrl({ queue: "orders", text: "4711", partition: "p" }), "/console/dead-letters?tab=jobs&subject=messages&queue=orders&payload=4711&partition=p");
  t.eq(searchJobUrl({ text: "4711" }), null, "a job needs a queue");
  t.eq(searchJobUrl({ queue: "orders", status: "pending" }), null);
});
