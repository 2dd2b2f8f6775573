"""The frame that both sources give and every computation takes: one row per subject and hour.

A subject is a queue, or an environment as a whole (an empty queue name). Hours in which nothing
happened have no row.
"""

from __future__ import annotations

from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

SUBJECT = ("organization", "project", "environment", "queue")

HOURS = StructType(
    [
        *(StructField(name, StringType()) for name in SUBJECT),
        StructField("hour_s", LongType()),
        # What was counted. `finished` left the queue for good: acked, dead or expired.
        *(StructField(name, LongType()) for name in ("enqueued", "dequeued", "finished")),
        # `finished` per consumer group that finished anything; null where groups are not known.
        StructField("served", DoubleType()),
        # The fullest bucket of the hour, and when it began (the first of several equal ones).
        StructField("peak_enqueued", LongType()),
        StructField("peak_enqueued_at_s", LongType()),
        StructField("peak_dequeued", LongType()),
        StructField("peak_dequeued_at_s", LongType()),
        # Gauges; null when none was observed in the hour.
        *(StructField(name, LongType()) for name in ("depth_max", "running_max", "running_last")),
        StructField("limit_last", LongType()),
        # Time that consumers spent working on what was finished or failed in this hour.
        StructField("run_ms", LongType()),
    ]
)

WAITS = StructType(
    [
        *(StructField(name, StringType()) for name in SUBJECT),
        StructField("waits", LongType()),
        *(StructField(f"wait_p{level}_ms", DoubleType()) for level in (50, 95, 99)),
    ]
)
