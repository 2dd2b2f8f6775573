-- The environment rollup of the queue metric: its gauges in the landing table, three tiers and their views.
-- Written from the definition by `python -m penstock.warehouse.migrations`; never to be changed.
-- May run while a pipeline inserts: no view is missing at any time, and what lands meanwhile is counted once
-- in the tiers there were. The environment's tiers begin with what lands after it.
-- An event without a queue speaks for its environment: from here on the queue's own tiers leave it out.

ALTER TABLE queue_landing
    ADD COLUMN IF NOT EXISTS env_depth_max Nullable(UInt64) AFTER oldest_age_ms_last,
    ADD COLUMN IF NOT EXISTS env_depth_last Nullable(UInt64) AFTER env_depth_max,
    ADD COLUMN IF NOT EXISTS env_running_max Nullable(UInt64) AFTER env_depth_last,
    ADD COLUMN IF NOT EXISTS env_running_last Nullable(UInt64) AFTER env_running_max,
    ADD COLUMN IF NOT EXISTS env_limit_max Nullable(UInt64) AFTER env_running_last,
    ADD COLUMN IF NOT EXISTS env_limit_last Nullable(UInt64) AFTER env_limit_max,
    ADD COLUMN IF NOT EXISTS env_oldest_age_ms_max Nullable(UInt64) AFTER env_limit_last,
    ADD COLUMN IF NOT EXISTS env_oldest_age_ms_last Nullable(UInt64) AFTER env_oldest_age_ms_max;

CREATE TABLE IF NOT EXISTS queue_environment_5s
(
    `organization` LowCardinality(String),
    `project` LowCardinality(String),
    `environment` LowCardinality(String),
    bucket DateTime('UTC') CODEC(Delta, ZSTD(1)),
    events SimpleAggregateFunction(sum, UInt64),
    seen_ms SimpleAggregateFunction(max, Nullable(UInt64)),
    enqueued SimpleAggregateFunction(sum, UInt64),
    dequeued SimpleAggregateFunction(sum, UInt64),
    acked SimpleAggregateFunction(sum, UInt64),
    nacked SimpleAggregateFunction(sum, UInt64),
    dead SimpleAggregateFunction(sum, UInt64),
    expired SimpleAggregateFunction(sum, UInt64),
    env_depth_max SimpleAggregateFunction(max, Nullable(UInt64)),
    env_depth_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    env_running_max SimpleAggregateFunction(max, Nullable(UInt64)),
    env_running_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    env_limit_max SimpleAggregateFunction(max, Nullable(UInt64)),
    env_limit_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    env_oldest_age_ms_max SimpleAggregateFunction(max, Nullable(UInt64)),
    env_oldest_age_ms_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
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
ORDER BY (`organization`, `project`, `environment`, bucket)
TTL bucket + INTERVAL 2 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS queue_environment_1m
(
    `organization` LowCardinality(String),
    `project` LowCardinality(String),
    `environment` LowCardinality(String),
    bucket DateTime('UTC') CODEC(Delta, ZSTD(1)),
    events SimpleAggregateFunction(sum, UInt64),
    seen_ms SimpleAggregateFunction(max, Nullable(UInt64)),
    enqueued SimpleAggregateFunction(sum, UInt64),
    dequeued SimpleAggregateFunction(sum, UInt64),
    acked SimpleAggregateFunction(sum, UInt64),
    nacked SimpleAggregateFunction(sum, UInt64),
    dead SimpleAggregateFunction(sum, UInt64),
    expired SimpleAggregateFunction(sum, UInt64),
    env_depth_max SimpleAggregateFunction(max, Nullable(UInt64)),
    env_depth_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    env_running_max SimpleAggregateFunction(max, Nullable(UInt64)),
    env_running_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    env_limit_max SimpleAggregateFunction(max, Nullable(UInt64)),
    env_limit_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    env_oldest_age_ms_max SimpleAggregateFunction(max, Nullable(UInt64)),
    env_oldest_age_ms_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
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
ORDER BY (`organization`, `project`, `environment`, bucket)
TTL bucket + INTERVAL 31 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS queue_environment_1h
(
    `organization` LowCardinality(String),
    `project` LowCardinality(String),
    `environment` LowCardinality(String),
    bucket DateTime('UTC') CODEC(Delta, ZSTD(1)),
    events SimpleAggregateFunction(sum, UInt64),
    seen_ms SimpleAggregateFunction(max, Nullable(UInt64)),
    enqueued SimpleAggregateFunction(sum, UInt64),
    dequeued SimpleAggregateFunction(sum, UInt64),
    acked SimpleAggregateFunction(sum, UInt64),
    nacked SimpleAggregateFunction(sum, UInt64),
    dead SimpleAggregateFunction(sum, UInt64),
    expired SimpleAggregateFunction(sum, UInt64),
    env_depth_max SimpleAggregateFunction(max, Nullable(UInt64)),
    env_depth_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    env_running_max SimpleAggregateFunction(max, Nullable(UInt64)),
    env_running_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    env_limit_max SimpleAggregateFunction(max, Nullable(UInt64)),
    env_limit_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
    env_oldest_age_ms_max SimpleAggregateFunction(max, Nullable(UInt64)),
    env_oldest_age_ms_last AggregateFunction(argMax, Nullable(UInt64), UInt128),
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
ORDER BY (`organization`, `project`, `environment`, bucket)
TTL bucket + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS queue_environment_5s_view
TO queue_environment_5s AS
SELECT
    `organization`,
    `project`,
    `environment`,
    toStartOfInterval(landing.at, INTERVAL 5 SECOND, 'UTC') AS bucket,
    sum(landing.events) AS events,
    maxIf(landing.seen_ms, isNotNull(landing.env_depth_last) OR isNotNull(landing.env_running_last) OR isNotNull(landing.env_limit_last) OR isNotNull(landing.env_oldest_age_ms_last)) AS seen_ms,
    sum(landing.enqueued) AS enqueued,
    sum(landing.dequeued) AS dequeued,
    sum(landing.acked) AS acked,
    sum(landing.nacked) AS nacked,
    sum(landing.dead) AS dead,
    sum(landing.expired) AS expired,
    max(landing.env_depth_max) AS env_depth_max,
    argMaxState(landing.env_depth_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS env_depth_last,
    max(landing.env_running_max) AS env_running_max,
    argMaxState(landing.env_running_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS env_running_last,
    max(landing.env_limit_max) AS env_limit_max,
    argMaxState(landing.env_limit_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS env_limit_last,
    max(landing.env_oldest_age_ms_max) AS env_oldest_age_ms_max,
    argMaxState(landing.env_oldest_age_ms_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS env_oldest_age_ms_last,
    sum(length(landing.wait_ms)) AS wait_ms_count,
    sum(arraySum(landing.wait_ms)) AS wait_ms_sum,
    max(arrayMax(landing.wait_ms)) AS wait_ms_max,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(landing.wait_ms) AS wait_ms_digest,
    sum(length(landing.run_ms)) AS run_ms_count,
    sum(arraySum(landing.run_ms)) AS run_ms_sum,
    max(arrayMax(landing.run_ms)) AS run_ms_max,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(landing.run_ms) AS run_ms_digest
FROM queue_landing AS landing
GROUP BY `organization`, `project`, `environment`, bucket;

CREATE MATERIALIZED VIEW IF NOT EXISTS queue_environment_1m_view
TO queue_environment_1m AS
SELECT
    `organization`,
    `project`,
    `environment`,
    toStartOfInterval(landing.at, INTERVAL 60 SECOND, 'UTC') AS bucket,
    sum(landing.events) AS events,
    maxIf(landing.seen_ms, isNotNull(landing.env_depth_last) OR isNotNull(landing.env_running_last) OR isNotNull(landing.env_limit_last) OR isNotNull(landing.env_oldest_age_ms_last)) AS seen_ms,
    sum(landing.enqueued) AS enqueued,
    sum(landing.dequeued) AS dequeued,
    sum(landing.acked) AS acked,
    sum(landing.nacked) AS nacked,
    sum(landing.dead) AS dead,
    sum(landing.expired) AS expired,
    max(landing.env_depth_max) AS env_depth_max,
    argMaxState(landing.env_depth_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS env_depth_last,
    max(landing.env_running_max) AS env_running_max,
    argMaxState(landing.env_running_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS env_running_last,
    max(landing.env_limit_max) AS env_limit_max,
    argMaxState(landing.env_limit_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS env_limit_last,
    max(landing.env_oldest_age_ms_max) AS env_oldest_age_ms_max,
    argMaxState(landing.env_oldest_age_ms_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS env_oldest_age_ms_last,
    sum(length(landing.wait_ms)) AS wait_ms_count,
    sum(arraySum(landing.wait_ms)) AS wait_ms_sum,
    max(arrayMax(landing.wait_ms)) AS wait_ms_max,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(landing.wait_ms) AS wait_ms_digest,
    sum(length(landing.run_ms)) AS run_ms_count,
    sum(arraySum(landing.run_ms)) AS run_ms_sum,
    max(arrayMax(landing.run_ms)) AS run_ms_max,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(landing.run_ms) AS run_ms_digest
FROM queue_landing AS landing
GROUP BY `organization`, `project`, `environment`, bucket;

CREATE MATERIALIZED VIEW IF NOT EXISTS queue_environment_1h_view
TO queue_environment_1h AS
SELECT
    `organization`,
    `project`,
    `environment`,
    toStartOfInterval(landing.at, INTERVAL 3600 SECOND, 'UTC') AS bucket,
    sum(landing.events) AS events,
    maxIf(landing.seen_ms, isNotNull(landing.env_depth_last) OR isNotNull(landing.env_running_last) OR isNotNull(landing.env_limit_last) OR isNotNull(landing.env_oldest_age_ms_last)) AS seen_ms,
    sum(landing.enqueued) AS enqueued,
    sum(landing.dequeued) AS dequeued,
    sum(landing.acked) AS acked,
    sum(landing.nacked) AS nacked,
    sum(landing.dead) AS dead,
    sum(landing.expired) AS expired,
    max(landing.env_depth_max) AS env_depth_max,
    argMaxState(landing.env_depth_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS env_depth_last,
    max(landing.env_running_max) AS env_running_max,
    argMaxState(landing.env_running_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS env_running_last,
    max(landing.env_limit_max) AS env_limit_max,
    argMaxState(landing.env_limit_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS env_limit_last,
    max(landing.env_oldest_age_ms_max) AS env_oldest_age_ms_max,
    argMaxState(landing.env_oldest_age_ms_last, bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)) AS env_oldest_age_ms_last,
    sum(length(landing.wait_ms)) AS wait_ms_count,
    sum(arraySum(landing.wait_ms)) AS wait_ms_sum,
    max(arrayMax(landing.wait_ms)) AS wait_ms_max,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(landing.wait_ms) AS wait_ms_digest,
    sum(length(landing.run_ms)) AS run_ms_count,
    sum(arraySum(landing.run_ms)) AS run_ms_sum,
    max(arrayMax(landing.run_ms)) AS run_ms_max,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(landing.run_ms) AS run_ms_digest
FROM queue_landing AS landing
GROUP BY `organization`, `project`, `environment`, bucket;

ALTER TABLE queue_5s_view MODIFY QUERY
SELECT
    `organization`,
    `project`,
    `environment`,
    `queue`,
    `group`,
    toStartOfInterval(landing.at, INTERVAL 5 SECOND, 'UTC') AS bucket,
    sum(landing.events) AS events,
    maxIf(landing.seen_ms, isNotNull(landing.depth_last) OR isNotNull(landing.running_last) OR isNotNull(landing.limit_last) OR isNotNull(landing.oldest_age_ms_last)) AS seen_ms,
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
WHERE landing.`queue` != ''
GROUP BY `organization`, `project`, `environment`, `queue`, `group`, bucket;

ALTER TABLE queue_1m_view MODIFY QUERY
SELECT
    `organization`,
    `project`,
    `environment`,
    `queue`,
    `group`,
    toStartOfInterval(landing.at, INTERVAL 60 SECOND, 'UTC') AS bucket,
    sum(landing.events) AS events,
    maxIf(landing.seen_ms, isNotNull(landing.depth_last) OR isNotNull(landing.running_last) OR isNotNull(landing.limit_last) OR isNotNull(landing.oldest_age_ms_last)) AS seen_ms,
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
WHERE landing.`queue` != ''
GROUP BY `organization`, `project`, `environment`, `queue`, `group`, bucket;

ALTER TABLE queue_1h_view MODIFY QUERY
SELECT
    `organization`,
    `project`,
    `environment`,
    `queue`,
    `group`,
    toStartOfInterval(landing.at, INTERVAL 3600 SECOND, 'UTC') AS bucket,
    sum(landing.events) AS events,
    maxIf(landing.seen_ms, isNotNull(landing.depth_last) OR isNotNull(landing.running_last) OR isNotNull(landing.limit_last) OR isNotNull(landing.oldest_age_ms_last)) AS seen_ms,
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
WHERE landing.`queue` != ''
GROUP BY `organization`, `project`, `environment`, `queue`, `group`, bucket;
