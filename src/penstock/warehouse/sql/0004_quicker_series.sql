-- Series in a fraction of the time: last values as one number each, percentiles of minutes and hours written down beside
-- their digests, and days of both in one part each when they have passed, with one file instead of sixty.
-- What is there is carried over: last values keep their value and take the row's last observation as their moment;
-- percentiles are worked out of each row's own digests. Days keep their files until they are merged or forgotten.
-- Run this while no pipeline inserts: a last value that lands between two steps of a table would be missing from it.

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_5s' AND ((name = 'depth_newest' AND default_kind = '') OR (name = 'depth_last' AND type LIKE 'Simple%'))
ALTER TABLE queue_5s
    ADD COLUMN IF NOT EXISTS depth_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(depth_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(depth_last))) AFTER depth_last,
    ADD COLUMN IF NOT EXISTS running_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(running_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(running_last))) AFTER running_last,
    ADD COLUMN IF NOT EXISTS limit_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(limit_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(limit_last))) AFTER limit_last,
    ADD COLUMN IF NOT EXISTS oldest_age_ms_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(oldest_age_ms_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(oldest_age_ms_last))) AFTER oldest_age_ms_last;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_5s' AND ((name = 'depth_newest' AND default_kind = '') OR (name = 'depth_last' AND type LIKE 'Simple%'))
ALTER TABLE queue_5s
    MATERIALIZE COLUMN depth_newest,
    MATERIALIZE COLUMN running_newest,
    MATERIALIZE COLUMN limit_newest,
    MATERIALIZE COLUMN oldest_age_ms_newest
SETTINGS mutations_sync = 2;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_5s' AND ((name = 'depth_newest' AND default_kind = '') OR (name = 'depth_last' AND type LIKE 'Simple%'))
ALTER TABLE queue_5s
    MODIFY COLUMN depth_newest REMOVE DEFAULT,
    MODIFY COLUMN running_newest REMOVE DEFAULT,
    MODIFY COLUMN limit_newest REMOVE DEFAULT,
    MODIFY COLUMN oldest_age_ms_newest REMOVE DEFAULT;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_5s' AND (name = 'depth_last' AND type LIKE 'Simple%')
ALTER TABLE queue_5s
    DROP COLUMN IF EXISTS depth_last,
    DROP COLUMN IF EXISTS running_last,
    DROP COLUMN IF EXISTS limit_last,
    DROP COLUMN IF EXISTS oldest_age_ms_last;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_5s' AND (name = 'depth_last' AND type LIKE 'Simple%')
ALTER TABLE queue_5s
    RENAME COLUMN IF EXISTS depth_newest TO depth_last,
    RENAME COLUMN IF EXISTS running_newest TO running_last,
    RENAME COLUMN IF EXISTS limit_newest TO limit_last,
    RENAME COLUMN IF EXISTS oldest_age_ms_newest TO oldest_age_ms_last;

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
    max(if(isNull(landing.depth_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.depth_last))) AS depth_last,
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

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_1m' AND ((name = 'depth_newest' AND default_kind = '') OR (name = 'depth_last' AND type LIKE 'Simple%'))
ALTER TABLE queue_1m
    ADD COLUMN IF NOT EXISTS depth_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(depth_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(depth_last))) AFTER depth_last,
    ADD COLUMN IF NOT EXISTS running_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(running_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(running_last))) AFTER running_last,
    ADD COLUMN IF NOT EXISTS limit_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(limit_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(limit_last))) AFTER limit_last,
    ADD COLUMN IF NOT EXISTS oldest_age_ms_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(oldest_age_ms_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(oldest_age_ms_last))) AFTER oldest_age_ms_last,
    ADD COLUMN IF NOT EXISTS wait_ms_percentiles SimpleAggregateFunction(max, UInt256) DEFAULT if(wait_ms_count = 0, toUInt256(0), bitShiftLeft(toUInt256(wait_ms_count), 192) + toUInt256(toUInt64(round(toFloat64(finalizeAggregation(wait_ms_digest)[1]) * 100))) + bitShiftLeft(toUInt256(toUInt64(round(toFloat64(finalizeAggregation(wait_ms_digest)[2]) * 100))), 64) + bitShiftLeft(toUInt256(toUInt64(round(toFloat64(finalizeAggregation(wait_ms_digest)[3]) * 100))), 128)) AFTER wait_ms_digest,
    ADD COLUMN IF NOT EXISTS run_ms_percentiles SimpleAggregateFunction(max, UInt256) DEFAULT if(run_ms_count = 0, toUInt256(0), bitShiftLeft(toUInt256(run_ms_count), 192) + toUInt256(toUInt64(round(toFloat64(finalizeAggregation(run_ms_digest)[1]) * 100))) + bitShiftLeft(toUInt256(toUInt64(round(toFloat64(finalizeAggregation(run_ms_digest)[2]) * 100))), 64) + bitShiftLeft(toUInt256(toUInt64(round(toFloat64(finalizeAggregation(run_ms_digest)[3]) * 100))), 128)) AFTER run_ms_digest;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_1m' AND ((name = 'depth_newest' AND default_kind = '') OR (name = 'depth_last' AND type LIKE 'Simple%'))
ALTER TABLE queue_1m
    MATERIALIZE COLUMN depth_newest,
    MATERIALIZE COLUMN running_newest,
    MATERIALIZE COLUMN limit_newest,
    MATERIALIZE COLUMN oldest_age_ms_newest,
    MATERIALIZE COLUMN wait_ms_percentiles,
    MATERIALIZE COLUMN run_ms_percentiles
SETTINGS mutations_sync = 2;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_1m' AND ((name = 'depth_newest' AND default_kind = '') OR (name = 'depth_last' AND type LIKE 'Simple%'))
ALTER TABLE queue_1m
    MODIFY COLUMN depth_newest REMOVE DEFAULT,
    MODIFY COLUMN running_newest REMOVE DEFAULT,
    MODIFY COLUMN limit_newest REMOVE DEFAULT,
    MODIFY COLUMN oldest_age_ms_newest REMOVE DEFAULT,
    MODIFY COLUMN wait_ms_percentiles REMOVE DEFAULT,
    MODIFY COLUMN run_ms_percentiles REMOVE DEFAULT;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_1m' AND (name = 'depth_last' AND type LIKE 'Simple%')
ALTER TABLE queue_1m
    DROP COLUMN IF EXISTS depth_last,
    DROP COLUMN IF EXISTS running_last,
    DROP COLUMN IF EXISTS limit_last,
    DROP COLUMN IF EXISTS oldest_age_ms_last;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_1m' AND (name = 'depth_last' AND type LIKE 'Simple%')
ALTER TABLE queue_1m
    RENAME COLUMN IF EXISTS depth_newest TO depth_last,
    RENAME COLUMN IF EXISTS running_newest TO running_last,
    RENAME COLUMN IF EXISTS limit_newest TO limit_last,
    RENAME COLUMN IF EXISTS oldest_age_ms_newest TO oldest_age_ms_last;

ALTER TABLE queue_1m MODIFY SETTING min_age_to_force_merge_seconds = 3600, min_age_to_force_merge_on_partition_only = 1, min_bytes_for_wide_part = 1099511627776;

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
    max(if(isNull(landing.depth_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.depth_last))) AS depth_last,
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

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_1h' AND ((name = 'depth_newest' AND default_kind = '') OR (name = 'depth_last' AND type LIKE 'Simple%'))
ALTER TABLE queue_1h
    ADD COLUMN IF NOT EXISTS depth_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(depth_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(depth_last))) AFTER depth_last,
    ADD COLUMN IF NOT EXISTS running_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(running_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(running_last))) AFTER running_last,
    ADD COLUMN IF NOT EXISTS limit_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(limit_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(limit_last))) AFTER limit_last,
    ADD COLUMN IF NOT EXISTS oldest_age_ms_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(oldest_age_ms_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(oldest_age_ms_last))) AFTER oldest_age_ms_last,
    ADD COLUMN IF NOT EXISTS wait_ms_percentiles SimpleAggregateFunction(max, UInt256) DEFAULT if(wait_ms_count = 0, toUInt256(0), bitShiftLeft(toUInt256(wait_ms_count), 192) + toUInt256(toUInt64(round(toFloat64(finalizeAggregation(wait_ms_digest)[1]) * 100))) + bitShiftLeft(toUInt256(toUInt64(round(toFloat64(finalizeAggregation(wait_ms_digest)[2]) * 100))), 64) + bitShiftLeft(toUInt256(toUInt64(round(toFloat64(finalizeAggregation(wait_ms_digest)[3]) * 100))), 128)) AFTER wait_ms_digest,
    ADD COLUMN IF NOT EXISTS run_ms_percentiles SimpleAggregateFunction(max, UInt256) DEFAULT if(run_ms_count = 0, toUInt256(0), bitShiftLeft(toUInt256(run_ms_count), 192) + toUInt256(toUInt64(round(toFloat64(finalizeAggregation(run_ms_digest)[1]) * 100))) + bitShiftLeft(toUInt256(toUInt64(round(toFloat64(finalizeAggregation(run_ms_digest)[2]) * 100))), 64) + bitShiftLeft(toUInt256(toUInt64(round(toFloat64(finalizeAggregation(run_ms_digest)[3]) * 100))), 128)) AFTER run_ms_digest;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_1h' AND ((name = 'depth_newest' AND default_kind = '') OR (name = 'depth_last' AND type LIKE 'Simple%'))
ALTER TABLE queue_1h
    MATERIALIZE COLUMN depth_newest,
    MATERIALIZE COLUMN running_newest,
    MATERIALIZE COLUMN limit_newest,
    MATERIALIZE COLUMN oldest_age_ms_newest,
    MATERIALIZE COLUMN wait_ms_percentiles,
    MATERIALIZE COLUMN run_ms_percentiles
SETTINGS mutations_sync = 2;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_1h' AND ((name = 'depth_newest' AND default_kind = '') OR (name = 'depth_last' AND type LIKE 'Simple%'))
ALTER TABLE queue_1h
    MODIFY COLUMN depth_newest REMOVE DEFAULT,
    MODIFY COLUMN running_newest REMOVE DEFAULT,
    MODIFY COLUMN limit_newest REMOVE DEFAULT,
    MODIFY COLUMN oldest_age_ms_newest REMOVE DEFAULT,
    MODIFY COLUMN wait_ms_percentiles REMOVE DEFAULT,
    MODIFY COLUMN run_ms_percentiles REMOVE DEFAULT;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_1h' AND (name = 'depth_last' AND type LIKE 'Simple%')
ALTER TABLE queue_1h
    DROP COLUMN IF EXISTS depth_last,
    DROP COLUMN IF EXISTS running_last,
    DROP COLUMN IF EXISTS limit_last,
    DROP COLUMN IF EXISTS oldest_age_ms_last;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_1h' AND (name = 'depth_last' AND type LIKE 'Simple%')
ALTER TABLE queue_1h
    RENAME COLUMN IF EXISTS depth_newest TO depth_last,
    RENAME COLUMN IF EXISTS running_newest TO running_last,
    RENAME COLUMN IF EXISTS limit_newest TO limit_last,
    RENAME COLUMN IF EXISTS oldest_age_ms_newest TO oldest_age_ms_last;

ALTER TABLE queue_1h MODIFY SETTING min_age_to_force_merge_seconds = 3600, min_age_to_force_merge_on_partition_only = 1, min_bytes_for_wide_part = 1099511627776;

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
    max(if(isNull(landing.depth_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.depth_last))) AS depth_last,
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

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_environment_5s' AND ((name = 'env_depth_newest' AND default_kind = '') OR (name = 'env_depth_last' AND type LIKE 'Simple%'))
ALTER TABLE queue_environment_5s
    ADD COLUMN IF NOT EXISTS env_depth_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(env_depth_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(env_depth_last))) AFTER env_depth_last,
    ADD COLUMN IF NOT EXISTS env_running_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(env_running_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(env_running_last))) AFTER env_running_last,
    ADD COLUMN IF NOT EXISTS env_limit_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(env_limit_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(env_limit_last))) AFTER env_limit_last,
    ADD COLUMN IF NOT EXISTS env_oldest_age_ms_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(env_oldest_age_ms_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(env_oldest_age_ms_last))) AFTER env_oldest_age_ms_last;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_environment_5s' AND ((name = 'env_depth_newest' AND default_kind = '') OR (name = 'env_depth_last' AND type LIKE 'Simple%'))
ALTER TABLE queue_environment_5s
    MATERIALIZE COLUMN env_depth_newest,
    MATERIALIZE COLUMN env_running_newest,
    MATERIALIZE COLUMN env_limit_newest,
    MATERIALIZE COLUMN env_oldest_age_ms_newest
SETTINGS mutations_sync = 2;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_environment_5s' AND ((name = 'env_depth_newest' AND default_kind = '') OR (name = 'env_depth_last' AND type LIKE 'Simple%'))
ALTER TABLE queue_environment_5s
    MODIFY COLUMN env_depth_newest REMOVE DEFAULT,
    MODIFY COLUMN env_running_newest REMOVE DEFAULT,
    MODIFY COLUMN env_limit_newest REMOVE DEFAULT,
    MODIFY COLUMN env_oldest_age_ms_newest REMOVE DEFAULT;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_environment_5s' AND (name = 'env_depth_last' AND type LIKE 'Simple%')
ALTER TABLE queue_environment_5s
    DROP COLUMN IF EXISTS env_depth_last,
    DROP COLUMN IF EXISTS env_running_last,
    DROP COLUMN IF EXISTS env_limit_last,
    DROP COLUMN IF EXISTS env_oldest_age_ms_last;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_environment_5s' AND (name = 'env_depth_last' AND type LIKE 'Simple%')
ALTER TABLE queue_environment_5s
    RENAME COLUMN IF EXISTS env_depth_newest TO env_depth_last,
    RENAME COLUMN IF EXISTS env_running_newest TO env_running_last,
    RENAME COLUMN IF EXISTS env_limit_newest TO env_limit_last,
    RENAME COLUMN IF EXISTS env_oldest_age_ms_newest TO env_oldest_age_ms_last;

ALTER TABLE queue_environment_5s_view MODIFY QUERY
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
    max(if(isNull(landing.env_depth_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.env_depth_last))) AS env_depth_last,
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

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_environment_1m' AND ((name = 'env_depth_newest' AND default_kind = '') OR (name = 'env_depth_last' AND type LIKE 'Simple%'))
ALTER TABLE queue_environment_1m
    ADD COLUMN IF NOT EXISTS env_depth_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(env_depth_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(env_depth_last))) AFTER env_depth_last,
    ADD COLUMN IF NOT EXISTS env_running_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(env_running_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(env_running_last))) AFTER env_running_last,
    ADD COLUMN IF NOT EXISTS env_limit_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(env_limit_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(env_limit_last))) AFTER env_limit_last,
    ADD COLUMN IF NOT EXISTS env_oldest_age_ms_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(env_oldest_age_ms_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(env_oldest_age_ms_last))) AFTER env_oldest_age_ms_last,
    ADD COLUMN IF NOT EXISTS wait_ms_percentiles SimpleAggregateFunction(max, UInt256) DEFAULT if(wait_ms_count = 0, toUInt256(0), bitShiftLeft(toUInt256(wait_ms_count), 192) + toUInt256(toUInt64(round(toFloat64(finalizeAggregation(wait_ms_digest)[1]) * 100))) + bitShiftLeft(toUInt256(toUInt64(round(toFloat64(finalizeAggregation(wait_ms_digest)[2]) * 100))), 64) + bitShiftLeft(toUInt256(toUInt64(round(toFloat64(finalizeAggregation(wait_ms_digest)[3]) * 100))), 128)) AFTER wait_ms_digest,
    ADD COLUMN IF NOT EXISTS run_ms_percentiles SimpleAggregateFunction(max, UInt256) DEFAULT if(run_ms_count = 0, toUInt256(0), bitShiftLeft(toUInt256(run_ms_count), 192) + toUInt256(toUInt64(round(toFloat64(finalizeAggregation(run_ms_digest)[1]) * 100))) + bitShiftLeft(toUInt256(toUInt64(round(toFloat64(finalizeAggregation(run_ms_digest)[2]) * 100))), 64) + bitShiftLeft(toUInt256(toUInt64(round(toFloat64(finalizeAggregation(run_ms_digest)[3]) * 100))), 128)) AFTER run_ms_digest;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_environment_1m' AND ((name = 'env_depth_newest' AND default_kind = '') OR (name = 'env_depth_last' AND type LIKE 'Simple%'))
ALTER TABLE queue_environment_1m
    MATERIALIZE COLUMN env_depth_newest,
    MATERIALIZE COLUMN env_running_newest,
    MATERIALIZE COLUMN env_limit_newest,
    MATERIALIZE COLUMN env_oldest_age_ms_newest,
    MATERIALIZE COLUMN wait_ms_percentiles,
    MATERIALIZE COLUMN run_ms_percentiles
SETTINGS mutations_sync = 2;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_environment_1m' AND ((name = 'env_depth_newest' AND default_kind = '') OR (name = 'env_depth_last' AND type LIKE 'Simple%'))
ALTER TABLE queue_environment_1m
    MODIFY COLUMN env_depth_newest REMOVE DEFAULT,
    MODIFY COLUMN env_running_newest REMOVE DEFAULT,
    MODIFY COLUMN env_limit_newest REMOVE DEFAULT,
    MODIFY COLUMN env_oldest_age_ms_newest REMOVE DEFAULT,
    MODIFY COLUMN wait_ms_percentiles REMOVE DEFAULT,
    MODIFY COLUMN run_ms_percentiles REMOVE DEFAULT;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_environment_1m' AND (name = 'env_depth_last' AND type LIKE 'Simple%')
ALTER TABLE queue_environment_1m
    DROP COLUMN IF EXISTS env_depth_last,
    DROP COLUMN IF EXISTS env_running_last,
    DROP COLUMN IF EXISTS env_limit_last,
    DROP COLUMN IF EXISTS env_oldest_age_ms_last;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_environment_1m' AND (name = 'env_depth_last' AND type LIKE 'Simple%')
ALTER TABLE queue_environment_1m
    RENAME COLUMN IF EXISTS env_depth_newest TO env_depth_last,
    RENAME COLUMN IF EXISTS env_running_newest TO env_running_last,
    RENAME COLUMN IF EXISTS env_limit_newest TO env_limit_last,
    RENAME COLUMN IF EXISTS env_oldest_age_ms_newest TO env_oldest_age_ms_last;

ALTER TABLE queue_environment_1m MODIFY SETTING min_age_to_force_merge_seconds = 3600, min_age_to_force_merge_on_partition_only = 1, min_bytes_for_wide_part = 1099511627776;

ALTER TABLE queue_environment_1m_view MODIFY QUERY
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
    max(if(isNull(landing.env_depth_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.env_depth_last))) AS env_depth_last,
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

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_environment_1h' AND ((name = 'env_depth_newest' AND default_kind = '') OR (name = 'env_depth_last' AND type LIKE 'Simple%'))
ALTER TABLE queue_environment_1h
    ADD COLUMN IF NOT EXISTS env_depth_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(env_depth_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(env_depth_last))) AFTER env_depth_last,
    ADD COLUMN IF NOT EXISTS env_running_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(env_running_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(env_running_last))) AFTER env_running_last,
    ADD COLUMN IF NOT EXISTS env_limit_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(env_limit_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(env_limit_last))) AFTER env_limit_last,
    ADD COLUMN IF NOT EXISTS env_oldest_age_ms_newest SimpleAggregateFunction(max, UInt256) DEFAULT if(isNull(finalizeAggregation(env_oldest_age_ms_last)), toUInt256(0), bitShiftLeft(toUInt256(intDiv(ifNull(seen_ms, 0), 5000) * 5), 128) + bitShiftLeft(toUInt256(bitShiftLeft(ifNull(seen_ms, 0), 22)), 64) + assumeNotNull(finalizeAggregation(env_oldest_age_ms_last))) AFTER env_oldest_age_ms_last,
    ADD COLUMN IF NOT EXISTS wait_ms_percentiles SimpleAggregateFunction(max, UInt256) DEFAULT if(wait_ms_count = 0, toUInt256(0), bitShiftLeft(toUInt256(wait_ms_count), 192) + toUInt256(toUInt64(round(toFloat64(finalizeAggregation(wait_ms_digest)[1]) * 100))) + bitShiftLeft(toUInt256(toUInt64(round(toFloat64(finalizeAggregation(wait_ms_digest)[2]) * 100))), 64) + bitShiftLeft(toUInt256(toUInt64(round(toFloat64(finalizeAggregation(wait_ms_digest)[3]) * 100))), 128)) AFTER wait_ms_digest,
    ADD COLUMN IF NOT EXISTS run_ms_percentiles SimpleAggregateFunction(max, UInt256) DEFAULT if(run_ms_count = 0, toUInt256(0), bitShiftLeft(toUInt256(run_ms_count), 192) + toUInt256(toUInt64(round(toFloat64(finalizeAggregation(run_ms_digest)[1]) * 100))) + bitShiftLeft(toUInt256(toUInt64(round(toFloat64(finalizeAggregation(run_ms_digest)[2]) * 100))), 64) + bitShiftLeft(toUInt256(toUInt64(round(toFloat64(finalizeAggregation(run_ms_digest)[3]) * 100))), 128)) AFTER run_ms_digest;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_environment_1h' AND ((name = 'env_depth_newest' AND default_kind = '') OR (name = 'env_depth_last' AND type LIKE 'Simple%'))
ALTER TABLE queue_environment_1h
    MATERIALIZE COLUMN env_depth_newest,
    MATERIALIZE COLUMN env_running_newest,
    MATERIALIZE COLUMN env_limit_newest,
    MATERIALIZE COLUMN env_oldest_age_ms_newest,
    MATERIALIZE COLUMN wait_ms_percentiles,
    MATERIALIZE COLUMN run_ms_percentiles
SETTINGS mutations_sync = 2;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_environment_1h' AND ((name = 'env_depth_newest' AND default_kind = '') OR (name = 'env_depth_last' AND type LIKE 'Simple%'))
ALTER TABLE queue_environment_1h
    MODIFY COLUMN env_depth_newest REMOVE DEFAULT,
    MODIFY COLUMN env_running_newest REMOVE DEFAULT,
    MODIFY COLUMN env_limit_newest REMOVE DEFAULT,
    MODIFY COLUMN env_oldest_age_ms_newest REMOVE DEFAULT,
    MODIFY COLUMN wait_ms_percentiles REMOVE DEFAULT,
    MODIFY COLUMN run_ms_percentiles REMOVE DEFAULT;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_environment_1h' AND (name = 'env_depth_last' AND type LIKE 'Simple%')
ALTER TABLE queue_environment_1h
    DROP COLUMN IF EXISTS env_depth_last,
    DROP COLUMN IF EXISTS env_running_last,
    DROP COLUMN IF EXISTS env_limit_last,
    DROP COLUMN IF EXISTS env_oldest_age_ms_last;

-- unless: SELECT 1 FROM system.columns WHERE database = currentDatabase() AND table = 'queue_environment_1h' AND (name = 'env_depth_last' AND type LIKE 'Simple%')
ALTER TABLE queue_environment_1h
    RENAME COLUMN IF EXISTS env_depth_newest TO env_depth_last,
    RENAME COLUMN IF EXISTS env_running_newest TO env_running_last,
    RENAME COLUMN IF EXISTS env_limit_newest TO env_limit_last,
    RENAME COLUMN IF EXISTS env_oldest_age_ms_newest TO env_oldest_age_ms_last;

ALTER TABLE queue_environment_1h MODIFY SETTING min_age_to_force_merge_seconds = 3600, min_age_to_force_merge_on_partition_only = 1, min_bytes_for_wide_part = 1099511627776;

ALTER TABLE queue_environment_1h_view MODIFY QUERY
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
    max(if(isNull(landing.env_depth_last), toUInt256(0), bitShiftLeft(toUInt256(toUnixTimestamp(landing.at)), 128) + bitShiftLeft(toUInt256(assumeNotNull(landing.seen_id)), 64) + assumeNotNull(landing.env_depth_last))) AS env_depth_last,
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
