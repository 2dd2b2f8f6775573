-- The queue metric: landing table, three tiers and their views, and what all metrics share.
-- Written by `python -m penstock.warehouse.migrations` from the definition; never to be changed.

CREATE TABLE IF NOT EXISTS set_aside
(
    metric LowCardinality(String),
    reason LowCardinality(String),
    stream LowCardinality(String),
    at DateTime('UTC') CODEC(Delta, ZSTD(1)),
    events UInt64,
    example String
)
ENGINE = MergeTree
PARTITION BY toDate(at)
ORDER BY (metric, reason, at)
TTL at + INTERVAL 31 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS freshness
(
    metric LowCardinality(String),
    newest_ms SimpleAggregateFunction(max, UInt64)
)
ENGINE = AggregatingMergeTree
ORDER BY (metric)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS queue_landing
(
    `organization` LowCardinality(String),
    `project` LowCardinality(String),
    `environment` LowCardinality(String),
    `queue` String,
    `group` LowCardinality(String),
    at DateTime('UTC'),
    events UInt64,
    newest_ms UInt64,
    seen_ms Nullable(UInt64),
    seen_id Nullable(UInt64),
    enqueued UInt64,
    dequeued UInt64,
    acked UInt64,
    nacked UInt64,
    dead UInt64,
    expired UInt64,
    depth_max Nullable(UInt64),
    depth_last Nullable(UInt64),
    running_max Nullable(UInt64),
    running_last Nullable(UInt64),
    limit_max Nullable(UInt64),
    limit_last Nullable(UInt64),
    oldest_age_ms_max Nullable(UInt64),
    oldest_age_ms_last Nullable(UInt64),
    wait_ms Array(UInt64),
    run_ms Array(UInt64)
)
ENGINE = Null;

CREATE TABLE IF NOT EXISTS queue_5s
(
    `organization` LowCardinality(String),
    `project` LowCardinality(String),
    `environment` LowCardinality(String),
    `queue` String,
    `group` LowCardinality(String),
    bucket DateTime('UTC') CODEC(Delta, ZSTD(1)),
    events SimpleAggregateFunction(sum, UInt64),
    seen_ms SimpleAggregateFunction(max, Nullable(UInt64)),
    enqueued SimpleAggregateFunction(sum, UInt64),
    dequeued SimpleAggregateFunction(sum, UInt64),
    acked SimpleAggregateFunction(sum, UInt64),
    nacked SimpleAggregateFunction(sum, UInt64),
    dead SimpleAggregateFunction(sum, UInt64),
    expired SimpleAggregateFunction(sum, UInt64),
    depth_max SimpleAggregateFunction(max, Nullable(UInt64)),
    depth_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    running_max SimpleAggregateFunction(max, Nullable(UInt64)),
    running_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    limit_max SimpleAggregateFunction(max, Nullable(UInt64)),
    limit_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    oldest_age_ms_max SimpleAggregateFunction(max, Nullable(UInt64)),
    oldest_age_ms_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    wait_ms_count SimpleAggregateFunction(sum, UInt64),
    wait_ms_sum SimpleAggregateFunction(sum, UInt64),
    wait_ms_max SimpleAggregateFunction(max, UInt64),
    wait_ms_digest AggregateFunction(quantilesTDigestArray(0.5, 0.95, 0.99), Array(UInt64)),
    run_ms_count SimpleAggregateFunction(sum, UInt64),
    run_ms_sum SimpleAggregateFunction(sum, UInt64),
    run_ms_max SimpleAggregateFunction(max, UInt64),
    run_ms_digest AggregateFunction(quantilesTDigestArray(0.5, 0.95, 0.99), Array(UInt64))
)
ENGINE = AggregatingMergeTree
PARTITION BY toDate(bucket)
ORDER BY (`organization`, `project`, `environment`, `queue`, `group`, bucket)
TTL bucket + INTERVAL 2 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS queue_1m
(
    `organization` LowCardinality(String),
    `project` LowCardinality(String),
    `environment` LowCardinality(String),
    `queue` String,
    `group` LowCardinality(String),
    bucket DateTime('UTC') CODEC(Delta, ZSTD(1)),
    events SimpleAggregateFunction(sum, UInt64),
    seen_ms SimpleAggregateFunction(max, Nullable(UInt64)),
    enqueued SimpleAggregateFunction(sum, UInt64),
    dequeued SimpleAggregateFunction(sum, UInt64),
    acked SimpleAggregateFunction(sum, UInt64),
    nacked SimpleAggregateFunction(sum, UInt64),
    dead SimpleAggregateFunction(sum, UInt64),
    expired SimpleAggregateFunction(sum, UInt64),
    depth_max SimpleAggregateFunction(max, Nullable(UInt64)),
    depth_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    running_max SimpleAggregateFunction(max, Nullable(UInt64)),
    running_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    limit_max SimpleAggregateFunction(max, Nullable(UInt64)),
    limit_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    oldest_age_ms_max SimpleAggregateFunction(max, Nullable(UInt64)),
    oldest_age_ms_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    wait_ms_count SimpleAggregateFunction(sum, UInt64),
    wait_ms_sum SimpleAggregateFunction(sum, UInt64),
    wait_ms_max SimpleAggregateFunction(max, UInt64),
    wait_ms_digest AggregateFunction(quantilesTDigestArray(0.5, 0.95, 0.99), Array(UInt64)),
    run_ms_count SimpleAggregateFunction(sum, UInt64),
    run_ms_sum SimpleAggregateFunction(sum, UInt64),
    run_ms_max SimpleAggregateFunction(max, UInt64),
    run_ms_digest AggregateFunction(quantilesTDigestArray(0.5, 0.95, 0.99), Array(UInt64))
)
ENGINE = AggregatingMergeTree
PARTITION BY toDate(bucket)
ORDER BY (`organization`, `project`, `environment`, `queue`, `group`, bucket)
TTL bucket + INTERVAL 31 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS queue_1h
(
    `organization` LowCardinality(String),
    `project` LowCardinality(String),
    `environment` LowCardinality(String),
    `queue` String,
    `group` LowCardinality(String),
    bucket DateTime('UTC') CODEC(Delta, ZSTD(1)),
    events SimpleAggregateFunction(sum, UInt64),
    seen_ms SimpleAggregateFunction(max, Nullable(UInt64)),
    enqueued SimpleAggregateFunction(sum, UInt64),
    dequeued SimpleAggregateFunction(sum, UInt64),
    acked SimpleAggregateFunction(sum, UInt64),
    nacked SimpleAggregateFunction(sum, UInt64),
    dead SimpleAggregateFunction(sum, UInt64),
    expired SimpleAggregateFunction(sum, UInt64),
    depth_max SimpleAggregateFunction(max, Nullable(UInt64)),
    depth_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    running_max SimpleAggregateFunction(max, Nullable(UInt64)),
    running_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    limit_max SimpleAggregateFunction(max, Nullable(UInt64)),
    limit_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    oldest_age_ms_max SimpleAggregateFunction(max, Nullable(UInt64)),
    oldest_age_ms_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    wait_ms_count SimpleAggregateFunction(sum, UInt64),
    wait_ms_sum SimpleAggregateFunction(sum, UInt64),
    wait_ms_max SimpleAggregateFunction(max, UInt64),
    wait_ms_digest AggregateFunction(quantilesTDigestArray(0.5, 0.95, 0.99), Array(UInt64)),
    run_ms_count SimpleAggregateFunction(sum, UInt64),
    run_ms_sum SimpleAggregateFunction(sum, UInt64),
    run_ms_max SimpleAggregateFunction(max, UInt64),
    run_ms_digest AggregateFunction(quantilesTDigestArray(0.5, 0.95, 0.99), Array(UInt64))
)
ENGINE = AggregatingMergeTree
PARTITION BY toDate(bucket)
ORDER BY (`organization`, `project`, `environment`, `queue`, `group`, bucket)
TTL bucket + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS queue_5s_view
TO queue_5s AS
SELECT
    `organization`,
    `project`,
    `environment`,
    `queue`,
    `group`,
    toStartOfInterval(landing.at, INTERVAL 5 SECOND, 'UTC') AS bucket,
    sum(landing.events) AS events,
    max(landing.seen_ms) AS seen_ms,
    sum(landing.enqueued) AS enqueued,
    sum(landing.dequeued) AS dequeued,
    sum(landing.acked) AS acked,
    sum(landing.nacked) AS nacked,
    sum(landing.dead) AS dead,
    sum(landing.expired) AS expired,
    max(landing.depth_max) AS depth_max,
    argMaxState(landing.depth_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS depth_last,
    max(landing.running_max) AS running_max,
    argMaxState(landing.running_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS running_last,
    max(landing.limit_max) AS limit_max,
    argMaxState(landing.limit_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS limit_last,
    max(landing.oldest_age_ms_max) AS oldest_age_ms_max,
    argMaxState(landing.oldest_age_ms_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS oldest_age_ms_last,
    sum(length(landing.wait_ms)) AS wait_ms_count,
    sum(arraySum(landing.wait_ms)) AS wait_ms_sum,
    max(arrayMax(landing.wait_ms)) AS wait_ms_max,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(landing.wait_ms) AS wait_ms_digest,
    sum(length(landing.run_ms)) AS run_ms_count,
    sum(arraySum(landing.run_ms)) AS run_ms_sum,
    max(arrayMax(landing.run_ms)) AS run_ms_max,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(landing.run_ms) AS run_ms_digest
FROM queue_landing AS landing
GROUP BY `organization`, `project`, `environment`, `queue`, `group`, bucket;

CREATE MATERIALIZED VIEW IF NOT EXISTS queue_1m_view
TO queue_1m AS
SELECT
    `organization`,
    `project`,
    `environment`,
    `queue`,
    `group`,
    toStartOfInterval(landing.at, INTERVAL 60 SECOND, 'UTC') AS bucket,
    sum(landing.events) AS events,
    max(landing.seen_ms) AS seen_ms,
    sum(landing.enqueued) AS enqueued,
    sum(landing.dequeued) AS dequeued,
    sum(landing.acked) AS acked,
    sum(landing.nacked) AS nacked,
    sum(landing.dead) AS dead,
    sum(landing.expired) AS expired,
    max(landing.depth_max) AS depth_max,
    argMaxState(landing.depth_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS depth_last,
    max(landing.running_max) AS running_max,
    argMaxState(landing.running_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS running_last,
    max(landing.limit_max) AS limit_max,
    argMaxState(landing.limit_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS limit_last,
    max(landing.oldest_age_ms_max) AS oldest_age_ms_max,
    argMaxState(landing.oldest_age_ms_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS oldest_age_ms_last,
    sum(length(landing.wait_ms)) AS wait_ms_count,
    sum(arraySum(landing.wait_ms)) AS wait_ms_sum,
    max(arrayMax(landing.wait_ms)) AS wait_ms_max,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(landing.wait_ms) AS wait_ms_digest,
    sum(length(landing.run_ms)) AS run_ms_count,
    sum(arraySum(landing.run_ms)) AS run_ms_sum,
    max(arrayMax(landing.run_ms)) AS run_ms_max,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(landing.run_ms) AS run_ms_digest
FROM queue_landing AS landing
GROUP BY `organization`, `project`, `environment`, `queue`, `group`, bucket;

CREATE MATERIALIZED VIEW IF NOT EXISTS queue_1h_view
TO queue_1h AS
SELECT
    `organization`,
    `project`,
    `environment`,
    `queue`,
    `group`,
    toStartOfInterval(landing.at, INTERVAL 3600 SECOND, 'UTC') AS bucket,
    sum(landing.events) AS events,
    max(landing.seen_ms) AS seen_ms,
    sum(landing.enqueued) AS enqueued,
    sum(landing.dequeued) AS dequeued,
    sum(landing.acked) AS acked,
    sum(landing.nacked) AS nacked,
    sum(landing.dead) AS dead,
    sum(landing.expired) AS expired,
    max(landing.depth_max) AS depth_max,
    argMaxState(landing.depth_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS depth_last,
    max(landing.running_max) AS running_max,
    argMaxState(landing.running_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS running_last,
    max(landing.limit_max) AS limit_max,
    argMaxState(landing.limit_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS limit_last,
    max(landing.oldest_age_ms_max) AS oldest_age_ms_max,
    argMaxState(landing.oldest_age_ms_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS oldest_age_ms_last,
    sum(length(landing.wait_ms)) AS wait_ms_count,
    sum(arraySum(landing.wait_ms)) AS wait_ms_sum,
    max(arrayMax(landing.wait_ms)) AS wait_ms_max,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(landing.wait_ms) AS wait_ms_digest,
    sum(length(landing.run_ms)) AS run_ms_count,
    sum(arraySum(landing.run_ms)) AS run_ms_sum,
    max(arrayMax(landing.run_ms)) AS run_ms_max,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(landing.run_ms) AS run_ms_digest
FROM queue_landing AS landing
GROUP BY `organization`, `project`, `environment`, `queue`, `group`, bucket;

CREATE MATERIALIZED VIEW IF NOT EXISTS queue_freshness_view
TO freshness AS
SELECT
    'queue' AS metric,
    max(landing.newest_ms) AS newest_ms
FROM queue_landing AS landing;
