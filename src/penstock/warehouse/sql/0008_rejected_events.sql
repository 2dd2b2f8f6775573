-- The rejected events themselves, so that they can be replayed. `set_aside` has their number and one example each.
-- Written from the definition by `python -m penstock.warehouse.schema_migrations`; never to be changed.
-- May run while a pipeline inserts.

CREATE TABLE IF NOT EXISTS rejected_events
(
    metric LowCardinality(String),
    reason LowCardinality(String),
    stream LowCardinality(String),
    at DateTime('UTC') CODEC(Delta, ZSTD(1)),
    entry String,
    text String,
    fields String CODEC(ZSTD(1)),
    replayed UInt8
)
ENGINE = ReplacingMergeTree(replayed)
PARTITION BY toDate(at)
ORDER BY (metric, at, stream, entry)
TTL at + INTERVAL 31 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;
