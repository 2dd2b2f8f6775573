"""The archive: events as Parquet files, compaction, and rebuilding tiers from them."""
