-- Two additions: the counter `released` (messages given back without a failed attempt), and the beginning of the
-- interval in which events were set aside.
-- Written from the definition by `python -m penstock.warehouse.schema_migrations`; never to be changed.
-- May run while a pipeline inserts: columns come before the views that fill them, and no view is missing at any time.
-- Rows from before have no released messages, and their interval begins where it ends.

ALTER TABLE set_aside
    ADD COLUMN IF NOT EXISTS began_at DateTime('UTC') DEFAULT at CODEC(Delta, ZSTD(1)) AFTER at;

ALTER TABLE queue_landing
    ADD COLUMN IF NOT EXISTS released UInt64 AFTER expired;

ALTER TABLE queue_5s
    ADD COLUMN IF NOT EXISTS released SimpleAggregateFunction(sum, UInt64) AFTER expired;

ALTER TABLE queue_1m
    ADD COLUMN IF NOT EXISTS released SimpleAggregateFunction(sum, UInt64) AFTER expired;

ALTER TABLE queue_1h
    ADD COLUMN IF NOT EXISTS released SimpleAggregateFunction(sum, UInt64) AFTER expired;

ALTER TABLE queue_environment_5s
    ADD COLUMN IF NOT EXISTS released SimpleAggregateFunction(sum, UInt64) AFTER expired;

ALTER TABLE queue_environment_1m
    ADD COLUMN IF NOT EXISTS released SimpleAggregateFunction(sum, UInt64) AFTER expired;

ALTER TABLE queue_environment_1h
    ADD COLUMN IF NOT EXISTS released SimpleAggregateFunction(sum, UInt64) AFTER expired;

ALTER TABLE queue_5s_view MODIFY QUERY
SELECT
    `organization`,
    `project`,
    `environment`,
    `queue`,
    `group`,
    toStartOfInterval(landing.at, INTERVAL 5 SECOND, 'UTC') AS bucket,
    sum(landing.events) AS events,
    maxIf(landing.seen_ms, isNotNull(landing.depth_last) OR isNotNull(landing.delayed_last) OR isNotNull(landing.running_last) OR isNotNull(landing.limit_last) OR isNotNull(landing.oldest_age_ms_last)) AS seen_ms,
    sum(landing.enqueued) AS enqueued,
    sum(landing.dequeued) AS dequeued,
    sum(landing.acked) AS acked,
    sum(landing.nacked) AS nacked,
    sum(landing.dead) AS dead,
    sum(landing.expired) AS expired,
    sum(landing.released) AS released,
    max(landing.depth_max) AS depth_max,
    max(if(isNull(landing.depth_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.depth_last))) AS depth_last,
    max(landing.delayed_max) AS delayed_max,
    max(if(isNull(landing.delayed_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.delayed_last))) AS delayed_last,
    max(landing.running_max) AS running_max,
    max(if(isNull(landing.running_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.running_last))) AS running_last,
    max(landing.limit_max) AS limit_max,
    max(if(isNull(landing.limit_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.limit_last))) AS limit_last,
    max(landing.oldest_age_ms_max) AS oldest_age_ms_max,
    max(if(isNull(landing.oldest_age_ms_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.oldest_age_ms_last))) AS oldest_age_ms_last,
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
    maxIf(landing.seen_ms, isNotNull(landing.depth_last) OR isNotNull(landing.delayed_last) OR isNotNull(landing.running_last) OR isNotNull(landing.limit_last) OR isNotNull(landing.oldest_age_ms_last)) AS seen_ms,
    sum(landing.enqueued) AS enqueued,
    sum(landing.dequeued) AS dequeued,
    sum(landing.acked) AS acked,
    sum(landing.nacked) AS nacked,
    sum(landing.dead) AS dead,
    sum(landing.expired) AS expired,
    sum(landing.released) AS released,
    max(landing.depth_max) AS depth_max,
    max(if(isNull(landing.depth_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.depth_last))) AS depth_last,
    max(landing.delayed_max) AS delayed_max,
    max(if(isNull(landing.delayed_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.delayed_last))) AS delayed_last,
    max(landing.running_max) AS running_max,
    max(if(isNull(landing.running_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.running_last))) AS running_last,
    max(landing.limit_max) AS limit_max,
    max(if(isNull(landing.limit_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.limit_last))) AS limit_last,
    max(landing.oldest_age_ms_max) AS oldest_age_ms_max,
    max(if(isNull(landing.oldest_age_ms_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.oldest_age_ms_last))) AS oldest_age_ms_last,
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
    maxIf(landing.seen_ms, isNotNull(landing.depth_last) OR isNotNull(landing.delayed_last) OR isNotNull(landing.running_last) OR isNotNull(landing.limit_last) OR isNotNull(landing.oldest_age_ms_last)) AS seen_ms,
    sum(landing.enqueued) AS enqueued,
    sum(landing.dequeued) AS dequeued,
    sum(landing.acked) AS acked,
    sum(landing.nacked) AS nacked,
    sum(landing.dead) AS dead,
    sum(landing.expired) AS expired,
    sum(landing.released) AS released,
    max(landing.depth_max) AS depth_max,
    max(if(isNull(landing.depth_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.depth_last))) AS depth_last,
    max(landing.delayed_max) AS delayed_max,
    max(if(isNull(landing.delayed_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.delayed_last))) AS delayed_last,
    max(landing.running_max) AS running_max,
    max(if(isNull(landing.running_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.running_last))) AS running_last,
    max(landing.limit_max) AS limit_max,
    max(if(isNull(landing.limit_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.limit_last))) AS limit_last,
    max(landing.oldest_age_ms_max) AS oldest_age_ms_max,
    max(if(isNull(landing.oldest_age_ms_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.oldest_age_ms_last))) AS oldest_age_ms_last,
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

ALTER TABLE queue_environment_5s_view MODIFY QUERY
SELECT
    `organization`,
    `project`,
    `environment`,
    toStartOfInterval(landing.at, INTERVAL 5 SECOND, 'UTC') AS bucket,
    sum(landing.events) AS events,
    maxIf(landing.seen_ms, isNotNull(landing.env_depth_last) OR isNotNull(landing.env_delayed_last) OR isNotNull(landing.env_running_last) OR isNotNull(landing.env_limit_last) OR isNotNull(landing.env_oldest_age_ms_last)) AS seen_ms,
    sum(landing.enqueued) AS enqueued,
    sum(landing.dequeued) AS dequeued,
    sum(landing.acked) AS acked,
    sum(landing.nacked) AS nacked,
    sum(landing.dead) AS dead,
    sum(landing.expired) AS expired,
    sum(landing.released) AS released,
    max(landing.env_depth_max) AS env_depth_max,
    max(if(isNull(landing.env_depth_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.env_depth_last))) AS env_depth_last,
    max(landing.env_delayed_max) AS env_delayed_max,
    max(if(isNull(landing.env_delayed_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.env_delayed_last))) AS env_delayed_last,
    max(landing.env_running_max) AS env_running_max,
    max(if(isNull(landing.env_running_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.env_running_last))) AS env_running_last,
    max(landing.env_limit_max) AS env_limit_max,
    max(if(isNull(landing.env_limit_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.env_limit_last))) AS env_limit_last,
    max(landing.env_oldest_age_ms_max) AS env_oldest_age_ms_max,
    max(if(isNull(landing.env_oldest_age_ms_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.env_oldest_age_ms_last))) AS env_oldest_age_ms_last,
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

ALTER TABLE queue_environment_1m_view MODIFY QUERY
SELECT
    `organization`,
    `project`,
    `environment`,
    toStartOfInterval(landing.at, INTERVAL 60 SECOND, 'UTC') AS bucket,
    sum(landing.events) AS events,
    maxIf(landing.seen_ms, isNotNull(landing.env_depth_last) OR isNotNull(landing.env_delayed_last) OR isNotNull(landing.env_running_last) OR isNotNull(landing.env_limit_last) OR isNotNull(landing.env_oldest_age_ms_last)) AS seen_ms,
    sum(landing.enqueued) AS enqueued,
    sum(landing.dequeued) AS dequeued,
    sum(landing.acked) AS acked,
    sum(landing.nacked) AS nacked,
    sum(landing.dead) AS dead,
    sum(landing.expired) AS expired,
    sum(landing.released) AS released,
    max(landing.env_depth_max) AS env_depth_max,
    max(if(isNull(landing.env_depth_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.env_depth_last))) AS env_depth_last,
    max(landing.env_delayed_max) AS env_delayed_max,
    max(if(isNull(landing.env_delayed_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.env_delayed_last))) AS env_delayed_last,
    max(landing.env_running_max) AS env_running_max,
    max(if(isNull(landing.env_running_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.env_running_last))) AS env_running_last,
    max(landing.env_limit_max) AS env_limit_max,
    max(if(isNull(landing.env_limit_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.env_limit_last))) AS env_limit_last,
    max(landing.env_oldest_age_ms_max) AS env_oldest_age_ms_max,
    max(if(isNull(landing.env_oldest_age_ms_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.env_oldest_age_ms_last))) AS env_oldest_age_ms_last,
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

ALTER TABLE queue_environment_1h_view MODIFY QUERY
SELECT
    `organization`,
    `project`,
    `environment`,
    toStartOfInterval(landing.at, INTERVAL 3600 SECOND, 'UTC') AS bucket,
    sum(landing.events) AS events,
    maxIf(landing.seen_ms, isNotNull(landing.env_depth_last) OR isNotNull(landing.env_delayed_last) OR isNotNull(landing.env_running_last) OR isNotNull(landing.env_limit_last) OR isNotNull(landing.env_oldest_age_ms_last)) AS seen_ms,
    sum(landing.enqueued) AS enqueued,
    sum(landing.dequeued) AS dequeued,
    sum(landing.acked) AS acked,
    sum(landing.nacked) AS nacked,
    sum(landing.dead) AS dead,
    sum(landing.expired) AS expired,
    sum(landing.released) AS released,
    max(landing.env_depth_max) AS env_depth_max,
    max(if(isNull(landing.env_depth_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.env_depth_last))) AS env_depth_last,
    max(landing.env_delayed_max) AS env_delayed_max,
    max(if(isNull(landing.env_delayed_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.env_delayed_last))) AS env_delayed_last,
    max(landing.env_running_max) AS env_running_max,
    max(if(isNull(landing.env_running_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.env_running_last))) AS env_running_last,
    max(landing.env_limit_max) AS env_limit_max,
    max(if(isNull(landing.env_limit_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.env_limit_last))) AS env_limit_last,
    max(landing.env_oldest_age_ms_max) AS env_oldest_age_ms_max,
    max(if(isNull(landing.env_oldest_age_ms_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.env_oldest_age_ms_last))) AS env_oldest_age_ms_last,
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
