// Convert a metrics response into columns for the charts, and into the numbers on a card.

const STEP_S = { "5s": 5, "1m": 60, "1h": 3_600, "12h": 43_200 };
const DRAWING_STEPS_S = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400];

// Events are counted within a few seconds, on a busy machine within ten. After this time the metrics are behind.
export const BEHIND_AFTER_S = 15;
// A bucket has a rate once this much of it is known.
const MIN_RATE_SPAN_S = 30;

const toSeconds = (iso) => Date.parse(iso) / 1_000;
const sum = (values) => values.reduce((total, v) => total + (v ?? 0), 0);
const maximum = (values) => values.reduce((max, v) => (v !== null && (max === null || v > max) ? v : max), null);
const mean = (values) => {
  const known = values.filter((v) => v !== null);
  return known.length ? sum(known) / known.length : null;
};

/**
 * Return columns by name with one value per bucket, null if unknown. Rates are per second, those of
 * failures per minute.
 *
 * Where events are not counted yet or were lost, a count of 0 or a repeated depth means nothing, so every column is
 * null there.
 */
export function toColumns(response) {
  const { timestamp, carried, complete, throughput, queue_depth: depth, delayed, latency, concurrency, failures } =
    response.columns;
  const step = STEP_S[response.resolution] ?? 5;
  const end = toSeconds(response.period.end);
  const newest = response.freshness ? toSeconds(response.freshness) : null;
  const { complete_until: completeUntil, lost } = response.completeness;
  const knownUntil = completeUntil ? toSeconds(completeUntil) : newest ?? 0;
  const x = timestamp.map(toSeconds);
  const hasLoss = x.map((start, i) => complete[i] === false && start + step <= knownUntil);
  const covered = x.map((start, i) => (hasLoss[i] ? null : coveredSeconds(start, step, knownUntil)));
  const isBehind = end - knownUntil >= BEHIND_AFTER_S;
  const known = (values) => covered.map((seconds, i) => (seconds === null ? null : values?.[i] ?? null));
  const gauge = ({ max, last }) => known(max.map((highest, i) => (carried[i] ? last[i] : highest)));
  const rate = (counts, perS) =>
    covered.map((seconds, i) => (seconds === null ? null : (perS * (counts[i] ?? 0)) / seconds));

  return {
    step,
    start: toSeconds(response.period.start),
    end,
    knownUntil,
    isBehind,
    x,
    lost,
    isUnknown: covered.map((seconds, i) => seconds === null && (hasLoss[i] || isBehind)),
    waiting: gauge(depth),
    delayed: nullIfAllZero(gauge(delayed)),
    isCarried: covered.map((seconds, i) => seconds !== null && carried[i]),
    enqueued: rate(throughput.enqueued, 1),
    dequeued: rate(throughput.dequeued, 1),
    completed: rate(throughput.completed, 1),
    avgWait: known(latency.avg_wait_ms),
    p95Wait: known(latency.p95_wait_ms),
    oldest: known(latency.max_age_ms),
    running: known(concurrency?.max),
    limit: nullIfAllZero(known(concurrency?.limit)),
    tier: response.tier ?? response.resolution,
    resolution: response.resolution,
    retried: rate(failures.nack, 60),
    dead: rate(failures.dlq, 60),
    expired: rate(failures.ttl_expired, 60),
    pushed: sum(throughput.enqueued),
    failed: {
      retried: sum(failures.nack),
      dead: sum(failures.dlq),
      expired: sum(failures.ttl_expired),
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
 * Return the columns to draw: at most `maxBuckets` buckets, with observed and carried gauges as separate lines.
 *
 * More buckets than pixels would blur, so neighbours are merged: rates by their mean; depth, delayed, p95, age and
 * running by their maximum. A merged bucket with an unknown part is unknown. Merged buckets start at round times, so that the
 * chart does not flicker as time moves on.
 */
export function toDrawing(series, maxBuckets) {
  const span = series.end - series.start;
  const step = DRAWING_STEPS_S.find((s) => s >= series.step && span / s <= maxBuckets) ?? DRAWING_STEPS_S.at(-1);
  return splitCarried(step === series.step ? series : mergeBuckets(series, step));
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
  const mergeFlags = (combine, flags) => groups.map(({ from, to }) => combine(flags.slice(from, to)));
  const isUnknown = mergeFlags((flags) => flags.some(Boolean), series.isUnknown);
  const mergeWith = (combine, values) =>
    groups.map(({ from, to }, i) => (isUnknown[i] ? null : combine(values.slice(from, to))));
  return {
    ...series,
    step,
    x: groups.map((group) => group.start),
    waiting: mergeWith(maximum, series.waiting),
    delayed: mergeWith(maximum, series.delayed),
    isCarried: mergeFlags((flags) => flags.every(Boolean), series.isCarried),
    isUnknown,
    enqueued: mergeWith(mean, series.enqueued),
    dequeued: mergeWith(mean, series.dequeued),
    completed: mergeWith(mean, series.completed),
    retried: mergeWith(mean, series.retried),
    dead: mergeWith(mean, series.dead),
    expired: mergeWith(mean, series.expired),
    avgWait: groups.map((group, i) => (isUnknown[i] ? null : meanWait(series, group))),
    p95Wait: mergeWith(maximum, series.p95Wait),
    oldest: mergeWith(maximum, series.oldest),
    running: mergeWith(maximum, series.running),
    limit: mergeWith(maximum, series.limit),
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
 * Split the depth into `depth`, where it was observed, and `carried`, where the last value was repeated; likewise what
 * runs and the age of the oldest message. Each line includes the point before its first one, so that the two lines meet
 * without a gap.
 */
function splitCarried(series) {
  const { waiting, running, oldest, isCarried } = series;
  const pick = (values, carried) =>
    values.map((v, i) => (isCarried[i] === carried || isCarried[i + 1] === carried ? v : null));
  return {
    ...series,
    depth: pick(waiting, false),
    carried: pick(waiting, true),
    observedRunning: pick(running, false),
    carriedRunning: pick(running, true),
    observedOldest: pick(oldest, false),
    carriedOldest: pick(oldest, true),
  };
}

/**
 * Return current numbers: rates over the last 30 s, the highest wait of the last minute, and the age of the oldest
 * message. All are null if the newest events are not counted.
 */
export function currentNumbers(series) {
  if (series.isBehind) return { inRate: null, outRate: null, p95Wait: null, oldest: null };
  // Rates are known wherever events were counted, so they tell the last known bucket.
  const knownBuckets = series.enqueued.findLastIndex((v) => v !== null) + 1;
  const recent = (values, spanS) => {
    const buckets = Math.max(1, Math.round(spanS / series.step));
    return values.slice(Math.max(0, knownBuckets - buckets), knownBuckets);
  };
  return {
    inRate: mean(recent(series.enqueued, 30)),
    outRate: mean(recent(series.completed, 30)),
    p95Wait: maximum(recent(series.p95Wait, 60)),
    oldest: series.oldest[knownBuckets - 1] ?? null,
  };
}

export const maxDepth = (series) => maximum(series.waiting);
