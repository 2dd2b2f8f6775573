"""The ClickHouse sink: insert each batch once, and write the percentiles of closed buckets.

Nothing here reads the streams.
"""
