"""The archive: events as Parquet files, their compaction, and the rebuild of tiers from them.

The archive is written by the tasks that read the streams. Nothing here may change a live table except by
swapping in a whole day.
"""
