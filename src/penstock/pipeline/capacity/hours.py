"""Schemas of the data frames that both sources return and every computation takes.

The main frame has one row per subject and hour. A subject is a queue, or an environment as a whole (an empty
queue name). Hours without events have no row.
"""

from __future__ import annotations

from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

SUBJECT = ("organization", "project", "environment", "queue")

HOUR_SCHEMA = StructType(
    [
        *(StructField(name, StringType()) for name in SUBJECT),
        StructField("hour_s", LongType()),
        # Counters. `finished` counts messages that left the queue for good: acked, dead or expired.
        *(StructField(name, LongType()) for name in ("enqueued", "dequeued", "finished")),
        # `finished` divided by the number of consumer groups that finished messages; null if groups are
        # unknown.
        StructField("served", DoubleType()),
        # The busiest bucket of the hour, and its start (the first of several equal ones).
        StructField("peak_enqueued", LongType()),
        StructField("peak_enqueued_at_s", LongType()),
        StructField("peak_dequeued", LongType()),
        StructField("peak_dequeued_at_s", LongType()),
        # Gauges; null if none was observed in the hour.
        *(StructField(name, LongType()) for name in ("depth_max", "running_max", "running_last")),
        StructField("limit_last", LongType()),
        # Time that consumers spent on messages that were finished or failed in this hour.
        StructField("run_ms", LongType()),
    ]
)

WAIT_SCHEMA = StructType(
    [
        *(StructField(name, StringType()) for name in SUBJECT),
        StructField("waits", LongType()),
        *(StructField(f"wait_p{level}_ms", DoubleType()) for level in (50, 95, 99)),
    ]
)
