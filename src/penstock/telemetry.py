"""The one table of every metric that `GET /metrics` exports: name, kind, labels and help.

Names carry their unit; a counter's sample ends in `_total`, which the exposition adds. Each metric says what
becomes of it when several processes share a port and any of them answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"


class Across(StrEnum):
    """How the values of the processes behind one port make one answer."""

    SHARED = "shared"
    """Everybody reads the same, from PostgreSQL or Redis: whoever is asked tells it."""
    SUM = "sum"
    """Of those that are gone too, where it is a counter: it never goes back."""
    MAX = "max"
    WORKER = "worker"
    """Each for itself, under a label."""


@dataclass(frozen=True, slots=True)
class Exported:
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    across: Across = Across.SHARED

    @property
    def all_labels(self) -> tuple[str, ...]:
        return (*self.labels, "worker") if self.across is Across.WORKER else self.labels


def _counter(name: str, words: str, *labels: str) -> Exported:
    return Exported(name, Kind.COUNTER, words, labels, Across.SUM)


def _summed(name: str, words: str, *labels: str) -> Exported:
    return Exported(name, Kind.GAUGE, words, labels, Across.SUM)


def _of_worker(name: str, words: str, *labels: str) -> Exported:
    return Exported(name, Kind.GAUGE, words, labels, Across.WORKER)


OVERFLOW = "__overflow__"
"""The name that queues share once there are more than may have a label of their own."""


REQUESTS = _counter("penstock_operation_requests", "requests carried out", "operation")
ITEMS = _counter("penstock_operation_items", "messages or acks in those requests", "operation")
BATCHES = _counter("penstock_operation_batches", "database calls they made", "operation")
SECONDS = _counter("penstock_operation_seconds", "time those calls took", "operation")
FAILURES = _counter("penstock_operation_failures", "database calls that failed", "operation")
PENDING = _summed("penstock_operation_pending", "requests waiting for their batch", "operation")
PARKED = _summed("penstock_parked_pops", "pops waiting for a message")
CONNECTIONS = _summed(
    "penstock_database_connections", "database connections: limit, open, busy, and who waits for one", "state"
)
DATABASE_ERRORS = _counter("penstock_database_errors", "calls that PostgreSQL did not answer or refused")
EMITTED = _counter("penstock_metric_events_emitted", "metric events written to their streams")
DROPPED = _counter("penstock_metric_events_dropped", "metric events lost for want of room")
BUFFERED = _summed("penstock_metric_events_pending", "metric events waiting for Redis")

QUEUE_AND_GROUP = ("queue", "group")
QUEUE_DEPTH = Exported(
    "penstock_queue_depth",
    Kind.GAUGE,
    "messages or tasks that wait; an empty group is the queue as a whole",
    QUEUE_AND_GROUP,
)
QUEUE_INFLIGHT = Exported(
    "penstock_queue_inflight", Kind.GAUGE, "messages or tasks being worked on", QUEUE_AND_GROUP
)
QUEUE_AGE = Exported(
    "penstock_queue_oldest_age_seconds",
    Kind.GAUGE,
    "for how long the oldest one that is eligible has waited",
    QUEUE_AND_GROUP,
)
QUEUE_LIMIT = Exported(
    "penstock_queue_concurrency_limit",
    Kind.GAUGE,
    "how many tasks of a run queue may run at once",
    ("queue",),
)
QUEUE_DELAYED = Exported(
    "penstock_queue_delayed",
    Kind.GAUGE,
    "tasks of a run queue that are not eligible yet, and not in its depth",
    ("queue",),
)
QUEUE_TASKS = Exported(
    "penstock_queue_tasks",
    Kind.COUNTER,
    "what happened to tasks of a run queue: enqueued, dequeued, acked, nacked, dead, expired",
    ("queue", "event"),
)
QUEUE_MESSAGES = _counter(
    "penstock_queue_messages",
    "what happened to messages: pushed, popped, completed, failed, dead, expired",
    *QUEUE_AND_GROUP,
    "event",
)
QUEUE_WAIT = Exported(
    "penstock_queue_wait_seconds",
    Kind.SUMMARY,
    "how long messages had waited when they were popped: sum and count",
    QUEUE_AND_GROUP,
    Across.SUM,
)
ANSWERED = _counter(
    "penstock_requests", "requests that clients got an answer to, without an error", "operation"
)
WORKERS = Exported("penstock_workers", Kind.GAUGE, "broker processes behind this port")
RESIDENT = _of_worker("penstock_worker_resident_memory_bytes", "resident memory of a broker process")
CPU = _counter("penstock_worker_cpu_seconds", "processor time of broker processes")
MINUTES_WAITING = _summed("penstock_worker_rows_pending", "minute rows that are not written yet")
MINUTES_DROPPED = _counter("penstock_worker_rows_dropped", "minute rows that were given up")
RECONCILED = Exported(
    "penstock_reconciliation_age_seconds",
    Kind.GAUGE,
    "how long ago totals and positions were last compared with the log",
)
DRIFT = Exported(
    "penstock_reconciliation_drift",
    Kind.GAUGE,
    "messages by which the last comparison found totals wrong; 0, or something is broken",
)
FINDINGS = Exported("penstock_reconciliation_findings", Kind.GAUGE, "what else it found, as a number")
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

LOAD = _of_worker("penstock_load", "how loaded a broker and its database are; 1 is full", "operation")
DECISIONS = _counter(
    "penstock_load_decisions",
    "requests that were to be executed, spilled or refused",
    "operation",
    "decision",
)
WAITING = Exported(
    "penstock_operations_waiting",
    Kind.GAUGE,
    "operations that were accepted and are not carried out yet, in the whole cluster",
    ("operation",),
    Across.MAX,
)
DRAINED = _counter("penstock_operations_drained", "operations carried out by these processes")
PARKED_OPERATIONS = _counter(
    "penstock_operations_parked", "operations that failed for good and wait for an operator"
)
EVENT_LOOP = _of_worker("penstock_event_loop_late_seconds", "how late a broker's event loop comes, smoothed")
JOURNAL_RECORDS = Exported(
    "penstock_journal_records", Kind.GAUGE, "pushes that wait in the journal for PostgreSQL"
)
JOURNAL_BYTES = Exported("penstock_journal_bytes", Kind.GAUGE, "what they take on disk")
OUTAGE = Exported(
    "penstock_database_outage_seconds",
    Kind.GAUGE,
    "for how long PostgreSQL has been away; 0: it is there",
    (),
    Across.MAX,
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
    *(QUEUE_DEPTH, QUEUE_INFLIGHT, QUEUE_AGE, QUEUE_LIMIT, QUEUE_DELAYED, QUEUE_TASKS),
    *(QUEUE_MESSAGES, QUEUE_WAIT),
    *(ANSWERED, REQUESTS, ITEMS, BATCHES, SECONDS, FAILURES, PENDING, PARKED),
    *(CONNECTIONS, DATABASE_ERRORS, HORIZON),
    *(WORKERS, RESIDENT, CPU, MINUTES_WAITING, MINUTES_DROPPED, RECONCILED, DRIFT, FINDINGS),
    *(EMITTED, DROPPED, BUFFERED),
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
