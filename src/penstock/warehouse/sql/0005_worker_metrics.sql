-- The worker as a metric: what broker processes did and how they were, in the same tiers as queues.

CREATE TABLE IF NOT EXISTS worker_landing
(
    `hostname` LowCardinality(String),
    `worker` LowCardinality(String),
    at DateTime('UTC'),
    events UInt64,
    newest_ms UInt64,
    seen_ms Nullable(UInt64),
    seen_id Nullable(UInt64),
    push_requests UInt64,
    push_messages UInt64,
    pop_requests UInt64,
    pop_messages UInt64,
    ack_requests UInt64,
    ack_messages UInt64,
    transaction_requests UInt64,
    transaction_messages UInt64,
    database_errors UInt64,
    dead_letters UInt64,
    busy_connections_max Nullable(UInt64),
    busy_connections_last Nullable(UInt64),
    free_connections_max Nullable(UInt64),
    free_connections_last Nullable(UInt64),
    connection_waiters_max Nullable(UInt64),
    connection_waiters_last Nullable(UInt64),
    pending_requests_max Nullable(UInt64),
    pending_requests_last Nullable(UInt64),
    parked_pops_max Nullable(UInt64),
    parked_pops_last Nullable(UInt64),
    spilled_max Nullable(UInt64),
    spilled_last Nullable(UInt64),
    resident_bytes_max Nullable(UInt64),
    resident_bytes_last Nullable(UInt64),
    late_ms Array(UInt64)
)
ENGINE = Null;

CREATE TABLE IF NOT EXISTS worker_5s
(
    `hostname` LowCardinality(String),
    `worker` LowCardinality(String),
    bucket DateTime('UTC') CODEC(Delta, ZSTD(1)),
    events SimpleAggregateFunction(sum, UInt64),
    seen_ms SimpleAggregateFunction(max, Nullable(UInt64)),
    push_requests SimpleAggregateFunction(sum, UInt64),
    push_messages SimpleAggregateFunction(sum, UInt64),
    pop_requests SimpleAggregateFunction(sum, UInt64),
    pop_messages SimpleAggregateFunction(sum, UInt64),
    ack_requests SimpleAggregateFunction(sum, UInt64),
    ack_messages SimpleAggregateFunction(sum, UInt64),
    transaction_requests SimpleAggregateFunction(sum, UInt64),
    transaction_messages SimpleAggregateFunction(sum, UInt64),
    database_errors SimpleAggregateFunction(sum, UInt64),
    dead_letters SimpleAggregateFunction(sum, UInt64),
    busy_connections_max SimpleAggregateFunction(max, Nullable(UInt64)),
    busy_connections_last SimpleAggregateFunction(max, UInt256),
    free_connections_max SimpleAggregateFunction(max, Nullable(UInt64)),
    free_connections_last SimpleAggregateFunction(max, UInt256),
    connection_waiters_max SimpleAggregateFunction(max, Nullable(UInt64)),
    connection_waiters_last SimpleAggregateFunction(max, UInt256),
    pending_requests_max SimpleAggregateFunction(max, Nullable(UInt64)),
    pending_requests_last SimpleAggregateFunction(max, UInt256),
    parked_pops_max SimpleAggregateFunction(max, Nullable(UInt64)),
    parked_pops_last SimpleAggregateFunction(max, UInt256),
    spilled_max SimpleAggregateFunction(max, Nullable(UInt64)),
    spilled_last SimpleAggregateFunction(max, UInt256),
    resident_bytes_max SimpleAggregateFunction(max, Nullable(UInt64)),
    resident_bytes_last SimpleAggregateFunction(max, UInt256),
    late_ms_count SimpleAggregateFunction(sum, UInt64),
    late_ms_sum SimpleAggregateFunction(sum, UInt64),
    late_ms_max SimpleAggregateFunction(max, UInt64),
    late_ms_digest AggregateFunction(quantilesTDigestArray(0.5, 0.95, 0.99), Array(UInt64))
)
ENGINE = AggregatingMergeTree
PARTITION BY toDate(bucket)
ORDER BY (`hostname`, `worker`, bucket)
TTL bucket + INTERVAL 2 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000, index_granularity = 1024;

CREATE TABLE IF NOT EXISTS worker_1m
(
    `hostname` LowCardinality(String),
    `worker` LowCardinality(String),
    bucket DateTime('UTC') CODEC(Delta, ZSTD(1)),
    events SimpleAggregateFunction(sum, UInt64),
    seen_ms SimpleAggregateFunction(max, Nullable(UInt64)),
    push_requests SimpleAggregateFunction(sum, UInt64),
    push_messages SimpleAggregateFunction(sum, UInt64),
    pop_requests SimpleAggregateFunction(sum, UInt64),
    pop_messages SimpleAggregateFunction(sum, UInt64),
    ack_requests SimpleAggregateFunction(sum, UInt64),
    ack_messages SimpleAggregateFunction(sum, UInt64),
    transaction_requests SimpleAggregateFunction(sum, UInt64),
    transaction_messages SimpleAggregateFunction(sum, UInt64),
    database_errors SimpleAggregateFunction(sum, UInt64),
    dead_letters SimpleAggregateFunction(sum, UInt64),
    busy_connections_max SimpleAggregateFunction(max, Nullable(UInt64)),
    busy_connections_last SimpleAggregateFunction(max, UInt256),
    free_connections_max SimpleAggregateFunction(max, Nullable(UInt64)),
    free_connections_last SimpleAggregateFunction(max, UInt256),
    connection_waiters_max SimpleAggregateFunction(max, Nullable(UInt64)),
    connection_waiters_last SimpleAggregateFunction(max, UInt256),
    pending_requests_max SimpleAggregateFunction(max, Nullable(UInt64)),
    pending_requests_last SimpleAggregateFunction(max, UInt256),
    parked_pops_max SimpleAggregateFunction(max, Nullable(UInt64)),
    parked_pops_last SimpleAggregateFunction(max, UInt256),
    spilled_max SimpleAggregateFunction(max, Nullable(UInt64)),
    spilled_last SimpleAggregateFunction(max, UInt256),
    resident_bytes_max SimpleAggregateFunction(max, Nullable(UInt64)),
    resident_bytes_last SimpleAggregateFunction(max, UInt256),
    late_ms_count SimpleAggregateFunction(sum, UInt64),
    late_ms_sum SimpleAggregateFunction(sum, UInt64),
    late_ms_max SimpleAggregateFunction(max, UInt64),
    late_ms_digest AggregateFunction(quantilesTDigestArray(0.5, 0.95, 0.99), Array(UInt64)),
    late_ms_percentiles SimpleAggregateFunction(max, UInt256)
)
ENGINE = AggregatingMergeTree
PARTITION BY toDate(bucket)
ORDER BY (`hostname`, `worker`, bucket)
TTL bucket + INTERVAL 31 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000, index_granularity = 256, min_age_to_force_merge_seconds = 3600, min_age_to_force_merge_on_partition_only = 1, min_bytes_for_wide_part = 1099511627776;

CREATE TABLE IF NOT EXISTS worker_1h
(
    `hostname` LowCardinality(String),
    `worker` LowCardinality(String),
    bucket DateTime('UTC') CODEC(Delta, ZSTD(1)),
    events SimpleAggregateFunction(sum, UInt64),
    seen_ms SimpleAggregateFunction(max, Nullable(UInt64)),
    push_requests SimpleAggregateFunction(sum, UInt64),
    push_messages SimpleAggregateFunction(sum, UInt64),
    pop_requests SimpleAggregateFunction(sum, UInt64),
    pop_messages SimpleAggregateFunction(sum, UInt64),
    ack_requests SimpleAggregateFunction(sum, UInt64),
    ack_messages SimpleAggregateFunction(sum, UInt64),
    transaction_requests SimpleAggregateFunction(sum, UInt64),
    transaction_messages SimpleAggregateFunction(sum, UInt64),
    database_errors SimpleAggregateFunction(sum, UInt64),
    dead_letters SimpleAggregateFunction(sum, UInt64),
    busy_connections_max SimpleAggregateFunction(max, Nullable(UInt64)),
    busy_connections_last SimpleAggregateFunction(max, UInt256),
    free_connections_max SimpleAggregateFunction(max, Nullable(UInt64)),
    free_connections_last SimpleAggregateFunction(max, UInt256),
    connection_waiters_max SimpleAggregateFunction(max, Nullable(UInt64)),
    connection_waiters_last SimpleAggregateFunction(max, UInt256),
    pending_requests_max SimpleAggregateFunction(max, Nullable(UInt64)),
    pending_requests_last SimpleAggregateFunction(max, UInt256),
    parked_pops_max SimpleAggregateFunction(max, Nullable(UInt64)),
    parked_pops_last SimpleAggregateFunction(max, UInt256),
    spilled_max SimpleAggregateFunction(max, Nullable(UInt64)),
    spilled_last SimpleAggregateFunction(max, UInt256),
    resident_bytes_max SimpleAggregateFunction(max, Nullable(UInt64)),
    resident_bytes_last SimpleAggregateFunction(max, UInt256),
    late_ms_count SimpleAggregateFunction(sum, UInt64),
    late_ms_sum SimpleAggregateFunction(sum, UInt64),
    late_ms_max SimpleAggregateFunction(max, UInt64),
    late_ms_digest AggregateFunction(quantilesTDigestArray(0.5, 0.95, 0.99), Array(UInt64)),
    late_ms_percentiles SimpleAggregateFunction(max, UInt256)
)
ENGINE = AggregatingMergeTree
PARTITION BY toDate(bucket)
ORDER BY (`hostname`, `worker`, bucket)
TTL bucket + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000, index_granularity = 128, min_age_to_force_merge_seconds = 3600, min_age_to_force_merge_on_partition_only = 1, min_bytes_for_wide_part = 1099511627776;

CREATE MATERIALIZED VIEW IF NOT EXISTS worker_5s_view
TO worker_5s AS
SELECT
    `hostname`,
    `worker`,
    toStartOfInterval(landing.at, INTERVAL 5 SECOND, 'UTC') AS bucket,
    sum(landing.events) AS events,
    max(landing.seen_ms) AS seen_ms,
    sum(landing.push_requests) AS push_requests,
    sum(landing.push_messages) AS push_messages,
    sum(landing.pop_requests) AS pop_requests,
    sum(landing.pop_messages) AS pop_messages,
    sum(landing.ack_requests) AS ack_requests,
    sum(landing.ack_messages) AS ack_messages,
    sum(landing.transaction_requests) AS transaction_requests,
    sum(landing.transaction_messages) AS transaction_messages,
    sum(landing.database_errors) AS database_errors,
    sum(landing.dead_letters) AS dead_letters,
    max(landing.busy_connections_max) AS busy_connections_max,
    max(if(isNull(landing.busy_connections_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.busy_connections_last))) AS busy_connections_last,
    max(landing.free_connections_max) AS free_connections_max,
    max(if(isNull(landing.free_connections_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.free_connections_last))) AS free_connections_last,
    max(landing.connection_waiters_max) AS connection_waiters_max,
    max(if(isNull(landing.connection_waiters_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.connection_waiters_last))) AS connection_waiters_last,
    max(landing.pending_requests_max) AS pending_requests_max,
    max(if(isNull(landing.pending_requests_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.pending_requests_last))) AS pending_requests_last,
    max(landing.parked_pops_max) AS parked_pops_max,
    max(if(isNull(landing.parked_pops_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.parked_pops_last))) AS parked_pops_last,
    max(landing.spilled_max) AS spilled_max,
    max(if(isNull(landing.spilled_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.spilled_last))) AS spilled_last,
    max(landing.resident_bytes_max) AS resident_bytes_max,
    max(if(isNull(landing.resident_bytes_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.resident_bytes_last))) AS resident_bytes_last,
    sum(length(landing.late_ms)) AS late_ms_count,
    sum(arraySum(landing.late_ms)) AS late_ms_sum,
    max(arrayMax(landing.late_ms)) AS late_ms_max,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(landing.late_ms) AS late_ms_digest
FROM worker_landing AS landing
GROUP BY `hostname`, `worker`, bucket;

CREATE MATERIALIZED VIEW IF NOT EXISTS worker_1m_view
TO worker_1m AS
SELECT
    `hostname`,
    `worker`,
    toStartOfInterval(landing.at, INTERVAL 60 SECOND, 'UTC') AS bucket,
    sum(landing.events) AS events,
    max(landing.seen_ms) AS seen_ms,
    sum(landing.push_requests) AS push_requests,
    sum(landing.push_messages) AS push_messages,
    sum(landing.pop_requests) AS pop_requests,
    sum(landing.pop_messages) AS pop_messages,
    sum(landing.ack_requests) AS ack_requests,
    sum(landing.ack_messages) AS ack_messages,
    sum(landing.transaction_requests) AS transaction_requests,
    sum(landing.transaction_messages) AS transaction_messages,
    sum(landing.database_errors) AS database_errors,
    sum(landing.dead_letters) AS dead_letters,
    max(landing.busy_connections_max) AS busy_connections_max,
    max(if(isNull(landing.busy_connections_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.busy_connections_last))) AS busy_connections_last,
    max(landing.free_connections_max) AS free_connections_max,
    max(if(isNull(landing.free_connections_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.free_connections_last))) AS free_connections_last,
    max(landing.connection_waiters_max) AS connection_waiters_max,
    max(if(isNull(landing.connection_waiters_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.connection_waiters_last))) AS connection_waiters_last,
    max(landing.pending_requests_max) AS pending_requests_max,
    max(if(isNull(landing.pending_requests_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.pending_requests_last))) AS pending_requests_last,
    max(landing.parked_pops_max) AS parked_pops_max,
    max(if(isNull(landing.parked_pops_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.parked_pops_last))) AS parked_pops_last,
    max(landing.spilled_max) AS spilled_max,
    max(if(isNull(landing.spilled_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.spilled_last))) AS spilled_last,
    max(landing.resident_bytes_max) AS resident_bytes_max,
    max(if(isNull(landing.resident_bytes_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.resident_bytes_last))) AS resident_bytes_last,
    sum(length(landing.late_ms)) AS late_ms_count,
    sum(arraySum(landing.late_ms)) AS late_ms_sum,
    max(arrayMax(landing.late_ms)) AS late_ms_max,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(landing.late_ms) AS late_ms_digest
FROM worker_landing AS landing
GROUP BY `hostname`, `worker`, bucket;

CREATE MATERIALIZED VIEW IF NOT EXISTS worker_1h_view
TO worker_1h AS
SELECT
    `hostname`,
    `worker`,
    toStartOfInterval(landing.at, INTERVAL 3600 SECOND, 'UTC') AS bucket,
    sum(landing.events) AS events,
    max(landing.seen_ms) AS seen_ms,
    sum(landing.push_requests) AS push_requests,
    sum(landing.push_messages) AS push_messages,
    sum(landing.pop_requests) AS pop_requests,
    sum(landing.pop_messages) AS pop_messages,
    sum(landing.ack_requests) AS ack_requests,
    sum(landing.ack_messages) AS ack_messages,
    sum(landing.transaction_requests) AS transaction_requests,
    sum(landing.transaction_messages) AS transaction_messages,
    sum(landing.database_errors) AS database_errors,
    sum(landing.dead_letters) AS dead_letters,
    max(landing.busy_connections_max) AS busy_connections_max,
    max(if(isNull(landing.busy_connections_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.busy_connections_last))) AS busy_connections_last,
    max(landing.free_connections_max) AS free_connections_max,
    max(if(isNull(landing.free_connections_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.free_connections_last))) AS free_connections_last,
    max(landing.connection_waiters_max) AS connection_waiters_max,
    max(if(isNull(landing.connection_waiters_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.connection_waiters_last))) AS connection_waiters_last,
    max(landing.pending_requests_max) AS pending_requests_max,
    max(if(isNull(landing.pending_requests_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.pending_requests_last))) AS pending_requests_last,
    max(landing.parked_pops_max) AS parked_pops_max,
    max(if(isNull(landing.parked_pops_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.parked_pops_last))) AS parked_pops_last,
    max(landing.spilled_max) AS spilled_max,
    max(if(isNull(landing.spilled_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.spilled_last))) AS spilled_last,
    max(landing.resident_bytes_max) AS resident_bytes_max,
    max(if(isNull(landing.resident_bytes_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.resident_bytes_last))) AS resident_bytes_last,
    sum(length(landing.late_ms)) AS late_ms_count,
    sum(arraySum(landing.late_ms)) AS late_ms_sum,
    max(arrayMax(landing.late_ms)) AS late_ms_max,
    quantilesTDigestArrayState(0.5, 0.95, 0.99)(landing.late_ms) AS late_ms_digest
FROM worker_landing AS landing
GROUP BY `hostname`, `worker`, bucket;

CREATE MATERIALIZED VIEW IF NOT EXISTS worker_freshness_view
TO freshness AS
SELECT
    'worker' AS metric,
    max(landing.newest_ms) AS newest_ms
FROM worker_landing AS landing;
