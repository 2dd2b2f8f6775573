"""The ClickHouse sink: insert each batch once, and percentiles of closed buckets."""
