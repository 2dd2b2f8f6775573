// Convert a metrics response into columns for the charts, and into the numbers on a card.

const STEP_S = { "5s": 5, "1m": 60, "1h": 3_600, "12h": 43_200 };
const DRAWING_STEPS_S = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400];

// Points that ended this long ago are normally counted: tally, stream, batch and insert take this long.
const EVENT_DELAY_S = 8;
// A bucket has a rate once this much of it is known.
const MIN_RATE_SPAN_S = 30;

const toSeconds = (iso) => Date.parse(iso) / 1_000;
const sum = (values) => values.reduce((total, v) => total + (v ?? 0), 0);
const maximum = (values) => values.reduce((max, v) => (v !== null && (max === null || v > max) ? v : max), null);
const lastKnown = (values) => values.findLast((v) => v !== null) ?? null;
const mean = (values) => {
  const known = values.filter((v) => v !== null);
  return known.length ? sum(known) / known.length : null;
};

/**
 * Return columns by name with one value per bucket, null if unknown. Rates are per second.
 *
 * A count of 0 means nothing where events are not counted yet or were lost, so such buckets have no rate.
 */
export function toColumns(response) {
  const points = response.timeseries;
  const step = STEP_S[response.resolution] ?? 5;
  const end = toSeconds(response.period.end);
  const newest = response.freshness ? toSeconds(response.freshness) : null;
  const { complete_until: completeUntil, lost } = response.completeness;
  const knownUntil = completeUntil ? toSeconds(completeUntil) : newest ?? 0;
  const x = points.map((p) => toSeconds(p.timestamp));
  const covered = x.map((start, i) => {
    const hasLoss = points[i].complete === false && start + step <= knownUntil;
    return hasLoss ? null : coveredSeconds(start, step, knownUntil);
  });
  const gauge = (key) => points.map((p) => (p.carried ? p[key]?.last : p[key]?.max) ?? null);
  const perSecond = (key) =>
    points.map((p, i) => (covered[i] === null ? null : (p.throughput[key] ?? 0) / covered[i]));

  return {
    step,
    start: toSeconds(response.period.start),
    end,
    newest,
    x,
    lost,
    isUnknown: x.map((start, i) => covered[i] === null && start + step <= end - EVENT_DELAY_S),
    waiting: gauge("queue_depth"),
    delayed: nullIfAllZero(gauge("delayed")),
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

/** Most queues never delay tasks, and a line at zero would be noise. */
const nullIfAllZero = (values) => (maximum(values) ? values : values.map(() => null));

/** Return the known part of a bucket, or null if it is too short for a meaningful rate. */
function coveredSeconds(start, step, knownUntil) {
  const covered = Math.min(step, knownUntil - start);
  return covered >= Math.min(step, MIN_RATE_SPAN_S) ? covered : null;
}

/**
 * Return the columns to draw: at most `maxBuckets` buckets, with observed and carried depth as separate lines.
 *
 * More buckets than pixels would blur, so neighbours are merged: rates by their mean; depth, delayed and p95 by
 * their maximum. Merged buckets start at round times, so that the chart does not flicker as time moves on.
 */
export function toDrawing(series, maxBuckets) {
  const span = series.end - series.start;
  const step = DRAWING_STEPS_S.find((s) => s >= series.step && span / s <= maxBuckets) ?? DRAWING_STEPS_S.at(-1);
  return splitCarriedDepth(step === series.step ? series : mergeBuckets(series, step));
}

function mergeBuckets(series, step) {
  const groups = [];
  let previousStart = null;
  series.x.forEach((x, i) => {
    const start = Math.floor(x / step) * step;
    if (start !== previousStart) groups.push({ start, from: i });
    groups.at(-1).to = i + 1;
    previousStart = start;
  });
  const mergeWith = (combine, values) => groups.map(({ from, to }) => combine(values.slice(from, to)));
  return {
    ...series,
    step,
    x: groups.map((group) => group.start),
    waiting: mergeWith(maximum, series.waiting),
    delayed: mergeWith(maximum, series.delayed),
    isCarried: mergeWith((flags) => flags.every(Boolean), series.isCarried),
    isUnknown: mergeWith((flags) => flags.some(Boolean), series.isUnknown),
    enqueued: mergeWith(mean, series.enqueued),
    dequeued: mergeWith(mean, series.dequeued),
    completed: mergeWith(mean, series.completed),
    avgWait: groups.map((group) => meanWait(series, group)),
    p95Wait: mergeWith(maximum, series.p95Wait),
  };
}

/** Return the mean wait, weighted by deliveries: one slow message must not outweigh a thousand fast ones. */
function meanWait({ avgWait, dequeued }, { from, to }) {
  let total = 0;
  let weight = 0;
  for (let i = from; i < to; i++) {
    if (avgWait[i] === null) continue;
    const deliveries = dequeued[i] || Number.EPSILON;
    total += avgWait[i] * deliveries;
    weight += deliveries;
  }
  return weight ? total / weight : null;
}

/**
 * Split the depth into `depth`, where it was observed, and `carried`, where the last value was repeated. Each line
 * includes the point before its first one, so that the two lines meet without a gap.
 */
function splitCarriedDepth(series) {
  const { waiting, isCarried } = series;
  const pick = (carried) =>
    waiting.map((v, i) => (isCarried[i] === carried || isCarried[i + 1] === carried ? v : null));
  return { ...series, depth: pick(false), carried: pick(true) };
}

/**
 * Return current numbers: rates over the last 30 s (null if the newest events are not counted), the highest wait and
 * the change of depth over a minute.
 */
export function currentNumbers(series) {
  const buckets = (spanS) => Math.max(1, Math.round(spanS / series.step));
  const knownBuckets = series.enqueued.findLastIndex((v) => v !== null) + 1;
  const isRecent = !series.isUnknown[knownBuckets];
  const recentMean = (values) =>
    isRecent ? mean(values.slice(Math.max(0, knownBuckets - buckets(30)), knownBuckets)) : null;
  const depth = lastKnown(series.waiting);
  const depthBefore = series.waiting.at(-1 - buckets(60)) ?? null;
  return {
    depthChange: depth === null || depthBefore === null ? null : depth - depthBefore,
    inRate: recentMean(series.enqueued),
    outRate: recentMean(series.completed),
    p95Wait: maximum(series.p95Wait.slice(-buckets(60) - 1)),
    oldest: lastKnown(series.oldest),
  };
}

export const maxDepth = (series) => maximum(series.waiting);
