"""The Redis Streams source: plan id ranges, read them, fold events into rows.

This is the hot path of the pipeline: code here works on columns, never on one object per event. Nothing here
writes to ClickHouse.
"""
