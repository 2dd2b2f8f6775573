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

LOAD = Exported("penstock_load", Kind.GAUGE, "how loaded broker and database are; 1 is full", OPERATION)
DECISIONS = Exported(
    "penstock_load_decisions",
    Kind.COUNTER,
    "requests that were to be executed, spilled or refused",
    ("operation", "decision"),
)
WAITING = Exported(
    "penstock_operations_waiting",
    Kind.GAUGE,
    "operations that were accepted and are not carried out yet, in the whole cluster",
    OPERATION,
)
DRAINED = Exported("penstock_operations_drained", Kind.COUNTER, "operations carried out by this process")
PARKED_OPERATIONS = Exported(
    "penstock_operations_parked", Kind.COUNTER, "operations that failed for good and wait for an operator"
)
EVENT_LOOP = Exported(
    "penstock_event_loop_late_seconds", Kind.GAUGE, "how late the broker's event loop comes, smoothed"
)
JOURNAL_RECORDS = Exported(
    "penstock_journal_records", Kind.GAUGE, "pushes that wait in the journal for PostgreSQL"
)
JOURNAL_BYTES = Exported("penstock_journal_bytes", Kind.GAUGE, "what they take on disk")
OUTAGE = Exported(
    "penstock_database_outage_seconds", Kind.GAUGE, "for how long PostgreSQL has been away; 0: it is there"
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
    *(
        LOAD,
        DECISIONS,
        WAITING,
        DRAINED,
        PARKED_OPERATIONS,
        EVENT_LOOP,
        JOURNAL_RECORDS,
        JOURNAL_BYTES,
        OUTAGE,
    ),
    *(DEAD_JOBS, DEAD_MESSAGES, DEAD_AGE, DEAD_DRIFT, DEAD_RECOUNT),
    *(PIPELINE_AGE, PIPELINE_FRESHNESS, PIPELINE_LAG, PIPELINE_INPUT, PIPELINE_PROCESSED, PIPELINE_BATCH),
    *(PIPELINE_REJECTED, PIPELINE_LOST),
)
