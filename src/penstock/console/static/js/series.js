// From the metrics answer to columns that can be drawn, and to the few numbers on a card.

const STEP_S = { "5s": 5, "1m": 60, "1h": 3_600 };
const DRAWN_STEPS_S = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400];

// How long after it happened an event can be expected in the answer: tallies, stream, batch, insert.
const ON_ITS_WAY_S = 4;
const ENOUGH_S = 30;

const seconds = (iso) => Date.parse(iso) / 1_000;
const sum = (values) => values.reduce((total, v) => total + (v ?? 0), 0);
const highest = (values) => values.reduce((top, v) => (v !== null && (top === null || v > top) ? v : top), null);
const lastKnown = (values) => values.findLast((v) => v !== null) ?? null;
const mean = (values) => {
  const known = values.filter((v) => v !== null);
  return known.length ? sum(known) / known.length : null;
};

/** Columns by name, one entry per bucket, with null where nothing is known. Rates are per second. */
export function columns(answer) {
  const points = answer.timeseries;
  const step = STEP_S[answer.resolution] ?? 5;
  const end = seconds(answer.period.end);
  const newest = answer.freshness ? seconds(answer.freshness) : null;
  const knownUntil = Math.max(newest ?? 0, end - ON_ITS_WAY_S);
  const x = points.map((p) => seconds(p.timestamp));
  const covered = x.map((start) => coveredSeconds(start, step, knownUntil));
  const gauge = (key) => points.map((p) => (p.carried ? p[key]?.last : p[key]?.max) ?? null);
  const perSecond = (key) =>
    points.map((p, i) => (covered[i] === null ? null : (p.throughput[key] ?? 0) / covered[i]));

  return {
    step,
    start: seconds(answer.period.start),
    end,
    newest,
    x,
    waiting: gauge("queue_depth"),
    delayed: ifAny(gauge("delayed")),
    isCarried: points.map((p) => Boolean(p.carried)),
    enqueued: perSecond("enqueued"),
    dequeued: perSecond("dequeued"),
    completed: perSecond("completed"),
    avgWait: points.map((p) => p.latency.avg_wait_ms ?? null),
    p95Wait: points.map((p) => p.latency.p95_wait_ms ?? null),
    oldest: points.map((p) => p.latency.max_age_ms ?? null),
    pushed: sum(points.map((p) => p.throughput.enqueued)),
    failed: {
      retried: sum(points.map((p) => p.failures.nack)),
      dead: sum(points.map((p) => p.failures.dlq)),
      expired: sum(points.map((p) => p.failures.ttl_expired)),
    },
  };
}

/** Most queues never delay anything: a line along zero would tell nobody anything. */
const ifAny = (values) => (highest(values) ? values : values.map(() => null));

/** A bucket still being filled has a rate once enough of it is known; a rate over a moment would be noise. */
function coveredSeconds(start, step, knownUntil) {
  const covered = Math.min(step, knownUntil - start);
  return covered >= Math.min(step, ENOUGH_S) ? covered : null;
}

/**
 * The columns as they are drawn: at most `room` of them, and depth in two hands.
 *
 * More buckets than pixels would only smear, so neighbours are merged: rates by their mean, depth, delayed and
 * p95 by their highest. The merged buckets sit on round times, so that the picture does not flicker as it moves.
 */
export function drawable(series, room) {
  const span = series.end - series.start;
  const step = DRAWN_STEPS_S.find((s) => s >= series.step && span / s <= room) ?? DRAWN_STEPS_S.at(-1);
  return inTwoHands(step === series.step ? series : merged(series, step));
}

function merged(series, step) {
  const groups = [];
  let before = null;
  series.x.forEach((x, i) => {
    const start = Math.floor(x / step) * step;
    if (start !== before) groups.push({ start, from: i });
    groups.at(-1).to = i + 1;
    before = start;
  });
  const by = (how, values) => groups.map(({ from, to }) => how(values.slice(from, to)));
  return {
    ...series,
    step,
    x: groups.map((group) => group.start),
    waiting: by(highest, series.waiting),
    delayed: by(highest, series.delayed),
    isCarried: by((flags) => flags.every(Boolean), series.isCarried),
    enqueued: by(mean, series.enqueued),
    dequeued: by(mean, series.dequeued),
    completed: by(mean, series.completed),
    avgWait: groups.map((group) => meanWait(series, group)),
    p95Wait: by(highest, series.p95Wait),
  };
}

/** Weighted by what was taken: one slow message among a thousand quick ones is not half of the truth. */
function meanWait({ avgWait, dequeued }, { from, to }) {
  let total = 0;
  let weight = 0;
  for (let i = from; i < to; i++) {
    if (avgWait[i] === null) continue;
    const taken = dequeued[i] || Number.EPSILON;
    total += avgWait[i] * taken;
    weight += taken;
  }
  return weight ? total / weight : null;
}

/**
 * `depth` where a change was observed, `carried` where the last value was repeated. A stretch belongs to its
 * right end, so that the two lines meet without a gap.
 */
function inTwoHands(series) {
  const { waiting, isCarried } = series;
  const hand = (carried) =>
    waiting.map((v, i) => (isCarried[i] === carried || isCarried[i + 1] === carried ? v : null));
  return { ...series, depth: hand(false), carried: hand(true) };
}

/** What is going on now: rates over the last 30 s, the worst wait and the change of depth over a minute. */
export function current(series) {
  const buckets = (spanS) => Math.max(1, Math.round(spanS / series.step));
  const known = series.enqueued.findLastIndex((v) => v !== null) + 1;
  const lately = (values) => mean(values.slice(Math.max(0, known - buckets(30)), known));
  const depth = lastKnown(series.waiting);
  const before = series.waiting.at(-1 - buckets(60)) ?? null;
  return {
    depthChange: depth === null || before === null ? null : depth - before,
    inRate: lately(series.enqueued),
    outRate: lately(series.completed),
    p95Wait: highest(series.p95Wait.slice(-buckets(60) - 1)),
    oldest: lastKnown(series.oldest),
  };
}

export const highestDepth = (series) => highest(series.waiting);
