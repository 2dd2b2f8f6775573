"""The one table of every metric that `GET /metrics` exports: name, kind, labels and help.

Names carry their unit; a counter's sample ends in `_total`, which the exposition adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Exported:
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


OPERATION = ("operation",)

REQUESTS = Exported("penstock_operation_requests", Kind.COUNTER, "requests carried out", OPERATION)
ITEMS = Exported("penstock_operation_items", Kind.COUNTER, "messages or acks in those requests", OPERATION)
BATCHES = Exported("penstock_operation_batches", Kind.COUNTER, "database calls they made", OPERATION)
SECONDS = Exported("penstock_operation_seconds", Kind.COUNTER, "time those calls took", OPERATION)
FAILURES = Exported("penstock_operation_failures", Kind.COUNTER, "database calls that failed", OPERATION)
PENDING = Exported("penstock_operation_pending", Kind.GAUGE, "requests waiting for their batch", OPERATION)
PARKED = Exported("penstock_parked_pops", Kind.GAUGE, "pops waiting for a message")
CONNECTIONS = Exported(
    "penstock_database_connections", Kind.GAUGE, "database connections: limit, open, busy", ("state",)
)
EMITTED = Exported("penstock_metric_events_emitted", Kind.COUNTER, "metric events written to their streams")
DROPPED = Exported("penstock_metric_events_dropped", Kind.COUNTER, "metric events lost for want of room")
BUFFERED = Exported("penstock_metric_events_pending", Kind.GAUGE, "metric events waiting for Redis")
HORIZON = Exported(
    "penstock_vacuum_horizon_age_seconds",
    Kind.GAUGE,
    "for how long a session, slot or transaction has kept dead rows from being removed",
    ("kind", "name"),
)

DEAD_JOBS = Exported("dead_job_count", Kind.GAUGE, "the same by other names", ("channel", "consumer"))
DEAD_MESSAGES = Exported(
    "penstock_dlq_messages", Kind.GAUGE, "dead letters of a queue and group", ("queue", "group")
)
DEAD_AGE = Exported(
    "penstock_dlq_oldest_message_age_seconds",
    Kind.GAUGE,
    "for how long the oldest of them has been dead",
    ("queue", "group"),
)
DEAD_DRIFT = Exported(
    "penstock_dlq_count_drift",
    Kind.GAUGE,
    "letters by which recounts of the last 31 days found the counts wrong; 0, or something is broken",
)
DEAD_RECOUNT = Exported(
    "penstock_dlq_recount_age_seconds", Kind.GAUGE, "how long ago the last whole recount ended"
)

METRIC = ("metric",)
PIPELINE_AGE = Exported(
    "penstock_pipeline_report_age_seconds",
    Kind.GAUGE,
    "how long ago the pipeline reported; large: it is not running",
)
PIPELINE_FRESHNESS = Exported(
    "penstock_pipeline_freshness_age_seconds",
    Kind.GAUGE,
    "age of the newest event that is in ClickHouse",
    METRIC,
)
PIPELINE_LAG = Exported(
    "penstock_pipeline_lag_entries", Kind.GAUGE, "entries that are not counted yet", ("stream",)
)
PIPELINE_INPUT = Exported(
    "penstock_pipeline_input_entries_per_second", Kind.GAUGE, "entries that enter the streams", METRIC
)
PIPELINE_PROCESSED = Exported(
    "penstock_pipeline_processed_entries_per_second", Kind.GAUGE, "how fast the last batch was", METRIC
)
PIPELINE_BATCH = Exported(
    "penstock_pipeline_batch_seconds", Kind.GAUGE, "how long the last batch took", METRIC
)
PIPELINE_REJECTED = Exported(
    "penstock_pipeline_rejected_events",
    Kind.GAUGE,
    "events of the last 31 days that could not be counted",
    METRIC,
)
PIPELINE_LOST = Exported(
    "penstock_pipeline_lost_events",
    Kind.GAUGE,
    "events of the last 31 days that were cut from a stream before they were read",
    METRIC,
)

EXPORTED: tuple[Exported, ...] = (
    *(REQUESTS, ITEMS, BATCHES, SECONDS, FAILURES, PENDING, PARKED, CONNECTIONS),
    *(EMITTED, DROPPED, BUFFERED, HORIZON),
    *(DEAD_JOBS, DEAD_MESSAGES, DEAD_AGE, DEAD_DRIFT, DEAD_RECOUNT),
    *(PIPELINE_AGE, PIPELINE_FRESHNESS, PIPELINE_LAG, PIPELINE_INPUT, PIPELINE_PROCESSED, PIPELINE_BATCH),
    *(PIPELINE_REJECTED, PIPELINE_LOST),
)
