-- Smaller granules for the tiers: a series reads far fewer rows of other queues along with its own.
-- Each table is made anew, takes over the days of the old one as they are, and is put in its place at once. Old
-- days keep their granules until they are merged or forgotten.
-- Run this while no pipeline inserts: what lands in a table between two of its steps would be missing from it.

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_5s' AND position(create_table_query, 'index_granularity = 1024') > 0
DROP TABLE IF EXISTS queue_5s_next;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_5s' AND position(create_table_query, 'index_granularity = 1024') > 0
CREATE TABLE IF NOT EXISTS queue_5s_next
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
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000, index_granularity = 1024;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_5s' AND position(create_table_query, 'index_granularity = 1024') > 0
ALTER TABLE queue_5s_next ATTACH PARTITION ALL FROM queue_5s;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_5s' AND position(create_table_query, 'index_granularity = 1024') > 0
EXCHANGE TABLES queue_5s AND queue_5s_next;

DROP TABLE IF EXISTS queue_5s_next;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_1m' AND position(create_table_query, 'index_granularity = 256') > 0
DROP TABLE IF EXISTS queue_1m_next;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_1m' AND position(create_table_query, 'index_granularity = 256') > 0
CREATE TABLE IF NOT EXISTS queue_1m_next
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
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000, index_granularity = 256;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_1m' AND position(create_table_query, 'index_granularity = 256') > 0
ALTER TABLE queue_1m_next ATTACH PARTITION ALL FROM queue_1m;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_1m' AND position(create_table_query, 'index_granularity = 256') > 0
EXCHANGE TABLES queue_1m AND queue_1m_next;

DROP TABLE IF EXISTS queue_1m_next;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_1h' AND position(create_table_query, 'index_granularity = 128') > 0
DROP TABLE IF EXISTS queue_1h_next;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_1h' AND position(create_table_query, 'index_granularity = 128') > 0
CREATE TABLE IF NOT EXISTS queue_1h_next
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
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000, index_granularity = 128;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_1h' AND position(create_table_query, 'index_granularity = 128') > 0
ALTER TABLE queue_1h_next ATTACH PARTITION ALL FROM queue_1h;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_1h' AND position(create_table_query, 'index_granularity = 128') > 0
EXCHANGE TABLES queue_1h AND queue_1h_next;

DROP TABLE IF EXISTS queue_1h_next;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_environment_5s' AND position(create_table_query, 'index_granularity = 1024') > 0
DROP TABLE IF EXISTS queue_environment_5s_next;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_environment_5s' AND position(create_table_query, 'index_granularity = 1024') > 0
CREATE TABLE IF NOT EXISTS queue_environment_5s_next
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
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000, index_granularity = 1024;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_environment_5s' AND position(create_table_query, 'index_granularity = 1024') > 0
ALTER TABLE queue_environment_5s_next ATTACH PARTITION ALL FROM queue_environment_5s;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_environment_5s' AND position(create_table_query, 'index_granularity = 1024') > 0
EXCHANGE TABLES queue_environment_5s AND queue_environment_5s_next;

DROP TABLE IF EXISTS queue_environment_5s_next;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_environment_1m' AND position(create_table_query, 'index_granularity = 256') > 0
DROP TABLE IF EXISTS queue_environment_1m_next;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_environment_1m' AND position(create_table_query, 'index_granularity = 256') > 0
CREATE TABLE IF NOT EXISTS queue_environment_1m_next
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
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000, index_granularity = 256;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_environment_1m' AND position(create_table_query, 'index_granularity = 256') > 0
ALTER TABLE queue_environment_1m_next ATTACH PARTITION ALL FROM queue_environment_1m;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_environment_1m' AND position(create_table_query, 'index_granularity = 256') > 0
EXCHANGE TABLES queue_environment_1m AND queue_environment_1m_next;

DROP TABLE IF EXISTS queue_environment_1m_next;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_environment_1h' AND position(create_table_query, 'index_granularity = 128') > 0
DROP TABLE IF EXISTS queue_environment_1h_next;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_environment_1h' AND position(create_table_query, 'index_granularity = 128') > 0
CREATE TABLE IF NOT EXISTS queue_environment_1h_next
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
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000, index_granularity = 128;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_environment_1h' AND position(create_table_query, 'index_granularity = 128') > 0
ALTER TABLE queue_environment_1h_next ATTACH PARTITION ALL FROM queue_environment_1h;

-- unless: SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = 'queue_environment_1h' AND position(create_table_query, 'index_granularity = 128') > 0
EXCHANGE TABLES queue_environment_1h AND queue_environment_1h_next;

DROP TABLE IF EXISTS queue_environment_1h_next;
