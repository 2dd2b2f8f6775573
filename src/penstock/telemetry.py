"""The metrics that `GET /metrics` exports: name, type, labels and help text of each.

Metric names carry their unit. The exposition format adds `_total` to the name of a counter's sample. Each
metric states how to combine the values of the broker processes that share a port, because any of them may
answer a scrape.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

ENVIRONMENT_LABELS = ("organization", "project", "environment")
"""The first labels of metrics that belong to an environment."""


class MetricType(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"


class WorkerAggregation(StrEnum):
    """How the values of the broker processes behind one port combine into one response."""

    SHARED = "shared"
    """Every process reads the same value from PostgreSQL or Redis; the process that answers reports it."""
    SUM = "sum"
    """The sum over all processes. A counter includes processes that have exited, so it never decreases."""
    MAX = "max"
    """The largest value of any process."""
    WORKER = "worker"
    """One sample per process, distinguished by the label `worker`."""


@dataclass(frozen=True, slots=True)
class ExportedMetric:
    name: str
    type: MetricType
    help: str
    labels: tuple[str, ...] = ()
    aggregation: WorkerAggregation = WorkerAggregation.SHARED

    @property
    def is_of_environment(self) -> bool:
        """Whether its first three labels name an environment."""
        return self.labels[:3] == ENVIRONMENT_LABELS

    @property
    def all_labels(self) -> tuple[str, ...]:
        """The labels of a sample, with `worker` if each process has its own."""
        return (*self.labels, "worker") if self.aggregation is WorkerAggregation.WORKER else self.labels


def _counter(name: str, help_text: str, *labels: str) -> ExportedMetric:
    return ExportedMetric(name, MetricType.COUNTER, help_text, labels, WorkerAggregation.SUM)


def _summed_gauge(name: str, help_text: str, *labels: str) -> ExportedMetric:
    return ExportedMetric(name, MetricType.GAUGE, help_text, labels, WorkerAggregation.SUM)


def _worker_gauge(name: str, help_text: str, *labels: str) -> ExportedMetric:
    return ExportedMetric(name, MetricType.GAUGE, help_text, labels, WorkerAggregation.WORKER)


def _shared_gauge(name: str, help_text: str, *labels: str) -> ExportedMetric:
    return ExportedMetric(name, MetricType.GAUGE, help_text, labels)


def _shared_counter(name: str, help_text: str, *labels: str) -> ExportedMetric:
    return ExportedMetric(name, MetricType.COUNTER, help_text, labels)


OVERFLOW = "__overflow__"
"""The label value that queues share once more queues exist than may have a label of their own."""


OPERATION_REQUESTS = _counter("penstock_operation_requests", "requests executed", "operation")
OPERATION_ITEMS = _counter("penstock_operation_items", "messages or acks in executed requests", "operation")
OPERATION_BATCHES = _counter(
    "penstock_operation_batches", "database calls made for executed requests", "operation"
)
OPERATION_SECONDS = _counter("penstock_operation_seconds", "time spent in those database calls", "operation")
OPERATION_FAILURES = _counter("penstock_operation_failures", "database calls that failed", "operation")
OPERATION_PENDING = _summed_gauge(
    "penstock_operation_pending", "requests waiting to join a batch", "operation"
)
PARKED_POPS = _summed_gauge("penstock_parked_pops", "long-polling pops waiting for a message")
DATABASE_CONNECTIONS = _summed_gauge(
    "penstock_database_connections",
    "database connections by state: the limit, open, busy, and operations waiting for a connection",
    "state",
)
DATABASE_ERRORS = _counter("penstock_database_errors", "calls that PostgreSQL rejected or did not answer")
METRIC_EVENTS_EMITTED = _counter("penstock_metric_events_emitted", "metric events written to Redis streams")
METRIC_EVENTS_DROPPED = _counter(
    "penstock_metric_events_dropped", "metric events dropped because the buffer was full"
)
METRIC_COUNTS_REPAIRED = _counter(
    "penstock_metric_counts_repaired",
    "pushed and completed messages that PostgreSQL knew and the metrics lacked; they are counted now",
)
METRIC_EVENTS_PENDING = _summed_gauge("penstock_metric_events_pending", "metric events buffered for Redis")

QUEUE_AND_GROUP = ("queue", "group")
QUEUE_DEPTH = _shared_gauge(
    "penstock_queue_depth",
    "messages or tasks waiting; an empty group label means the whole queue",
    *ENVIRONMENT_LABELS,
    *QUEUE_AND_GROUP,
)
QUEUE_INFLIGHT = _shared_gauge(
    "penstock_queue_inflight",
    "messages or tasks currently leased to consumers",
    *ENVIRONMENT_LABELS,
    *QUEUE_AND_GROUP,
)
QUEUE_OLDEST_AGE = _shared_gauge(
    "penstock_queue_oldest_age_seconds",
    "waiting time of the oldest message or task that is ready for delivery",
    *ENVIRONMENT_LABELS,
    *QUEUE_AND_GROUP,
)
QUEUE_CONCURRENCY_LIMIT = _shared_gauge(
    "penstock_queue_concurrency_limit",
    "maximum number of running tasks of a run queue",
    *ENVIRONMENT_LABELS,
    "queue",
)
QUEUE_DELAYED = _shared_gauge(
    "penstock_queue_delayed",
    "delayed tasks of a run queue; the queue's depth excludes them",
    *ENVIRONMENT_LABELS,
    "queue",
)
QUEUE_PAUSED = _shared_gauge(
    "penstock_queue_paused",
    "1 if the durable queue or run queue is paused, 0 if not",
    *ENVIRONMENT_LABELS,
    "queue",
)
QUEUES_UNSAMPLED = _shared_gauge(
    "penstock_queues_unsampled",
    "durable queues that no sample of a queue includes, because their environment has more than 10,000",
    *ENVIRONMENT_LABELS,
)
QUEUE_TASKS = ExportedMetric(
    "penstock_queue_tasks",
    MetricType.COUNTER,
    "tasks of a run queue by event: enqueued, dequeued, acked, nacked, dead, expired",
    (*ENVIRONMENT_LABELS, "queue", "event"),
)
QUEUE_MESSAGES = _counter(
    "penstock_queue_messages",
    "messages by event: pushed, popped, completed, failed, dead, expired",
    *ENVIRONMENT_LABELS,
    *QUEUE_AND_GROUP,
    "event",
)
QUEUE_WAIT = ExportedMetric(
    "penstock_queue_wait_seconds",
    MetricType.SUMMARY,
    "waiting time of popped messages: sum and count",
    (*ENVIRONMENT_LABELS, *QUEUE_AND_GROUP),
    WorkerAggregation.SUM,
)
CLIENT_REQUESTS = _counter("penstock_requests", "client requests answered without an error", "operation")
WORKERS = _shared_gauge("penstock_workers", "broker processes behind this port")
WORKER_RESIDENT_MEMORY = _worker_gauge(
    "penstock_worker_resident_memory_bytes", "resident memory of a broker process"
)
WORKER_CPU = _counter("penstock_worker_cpu_seconds", "CPU time used by broker processes")
WORKER_ROWS_PENDING = _summed_gauge(
    "penstock_worker_rows_pending", "per-minute metric rows not yet written to PostgreSQL"
)
WORKER_ROWS_DROPPED = _counter(
    "penstock_worker_rows_dropped", "per-minute metric rows dropped without being written"
)
RECONCILIATION_AGE = _shared_gauge(
    "penstock_reconciliation_age_seconds",
    "time since totals and positions were last compared with the message log",
)
RECONCILIATION_DRIFT = _shared_gauge(
    "penstock_reconciliation_drift",
    "messages by which the last comparison found totals wrong; any value but 0 indicates a defect",
)
RECONCILIATION_FINDINGS = _shared_gauge(
    "penstock_reconciliation_findings", "number of other problems the last comparison found"
)
VACUUM_HORIZON_AGE = _shared_gauge(
    "penstock_vacuum_horizon_age_seconds",
    "time for which a session, replication slot or transaction has kept PostgreSQL from removing dead rows",
    "kind",
    "name",
)

DEAD_JOB_COUNT = _shared_gauge(
    "dead_job_count",
    "same values as penstock_dlq_messages, with other label names",
    *ENVIRONMENT_LABELS,
    "channel",
    "consumer",
)
DEAD_LETTERS = _shared_gauge(
    "penstock_dlq_messages",
    "dead letters of a queue and group",
    *ENVIRONMENT_LABELS,
    *QUEUE_AND_GROUP,
)
DEAD_LETTER_OLDEST_AGE = _shared_gauge(
    "penstock_dlq_oldest_message_age_seconds",
    "time since the oldest dead letter of a queue and group was declared dead",
    *ENVIRONMENT_LABELS,
    *QUEUE_AND_GROUP,
)
DEAD_LETTER_DRIFT = _shared_gauge(
    "penstock_dlq_count_drift",
    "dead letters by which recounts of the last 31 days found the counts wrong; "
    "any value but 0 indicates a defect",
)
DEAD_LETTER_RECOUNT_AGE = _shared_gauge(
    "penstock_dlq_recount_age_seconds", "time since the last complete recount of dead letters ended"
)

LOAD = _worker_gauge("penstock_load", "load of a broker and its database; 1 means full", "operation")
LOAD_DECISIONS = _counter(
    "penstock_load_decisions",
    "requests by decision of the overload control: execute, spill (defer), refuse",
    "operation",
    "decision",
)
OPERATIONS_WAITING = ExportedMetric(
    "penstock_operations_waiting",
    MetricType.GAUGE,
    "deferred operations of the whole cluster that are not executed yet",
    ("operation",),
    WorkerAggregation.MAX,
)
OPERATIONS_DRAINED = _counter(
    "penstock_operations_drained", "deferred operations that these processes have executed"
)
OPERATIONS_PARKED = _counter(
    "penstock_operations_parked", "deferred operations that failed permanently and need an operator"
)
EVENT_LOOP_LAG = _worker_gauge("penstock_event_loop_late_seconds", "smoothed lag of a broker's event loop")
JOURNAL_RECORDS = _shared_gauge(
    "penstock_journal_records", "pushes in the local journal, waiting for PostgreSQL"
)
JOURNAL_BYTES = _shared_gauge("penstock_journal_bytes", "disk space used by pushes in the journal")
DATABASE_OUTAGE = ExportedMetric(
    "penstock_database_outage_seconds",
    MetricType.GAUGE,
    "time since PostgreSQL became unreachable; 0 while it is reachable",
    (),
    WorkerAggregation.MAX,
)

PIPELINE_REPORT_AGE = _shared_gauge(
    "penstock_pipeline_report_age_seconds",
    "time since the pipeline's last report; a large value means that the pipeline is not running",
)
PIPELINE_QUERY_RUNNING = _shared_gauge(
    "penstock_pipeline_query_running",
    "1 while the query of a metric reads its streams; 0 while it starts, has failed, or does not report",
    "metric",
)
PIPELINE_QUERY_FAILURES = _shared_counter(
    "penstock_pipeline_query_failures", "failures of a metric's query since the pipeline started", "metric"
)
PIPELINE_QUERY_RESTARTS = _shared_counter(
    "penstock_pipeline_query_restarts",
    "times that the pipeline started a metric's query again after a failure",
    "metric",
)
PIPELINE_FRESHNESS_AGE = _shared_gauge(
    "penstock_pipeline_freshness_age_seconds", "age of the newest event in ClickHouse", "metric"
)
PIPELINE_LAG = _shared_gauge(
    "penstock_pipeline_lag_entries",
    "stream entries the pipeline has not counted yet, read from Redis at every scrape",
    "stream",
)
PIPELINE_INPUT_RATE = _shared_gauge(
    "penstock_pipeline_input_entries_per_second", "entries added to the streams per second", "metric"
)
PIPELINE_PROCESSED_RATE = _shared_gauge(
    "penstock_pipeline_processed_entries_per_second",
    "entries that the last batch processed per second",
    "metric",
)
PIPELINE_BATCH_DURATION = _shared_gauge(
    "penstock_pipeline_batch_seconds", "duration of the last batch", "metric"
)
PIPELINE_REJECTED = _shared_gauge(
    "penstock_pipeline_rejected_events",
    "events of the last 31 days that the pipeline could not read and did not count",
    "metric",
)
PIPELINE_LOST = _shared_gauge(
    "penstock_pipeline_lost_events",
    "events of the last 31 days that Redis trimmed from a stream before the pipeline read them",
    "metric",
)

ALERT_EVALUATION_LAG = _shared_gauge(
    "penstock_alert_evaluation_lag_seconds",
    "age of the metrics up to which alert rules were last evaluated; it grows while nothing evaluates them",
)
ALERT_EVALUATION_DURATION = _shared_gauge(
    "penstock_alert_evaluation_duration_seconds", "duration of the last evaluation of all alert rules"
)
ALERT_EVALUATIONS = _shared_counter("penstock_alert_evaluations", "evaluations of all alert rules")
ALERT_EVALUATION_FAILURES = _shared_counter(
    "penstock_alert_evaluation_failures", "evaluations of alert rules that failed"
)
INCIDENTS = _shared_gauge(
    "penstock_incidents",
    "incidents that are not resolved: open or acknowledged",
    *ENVIRONMENT_LABELS,
    "severity",
    "state",
)
ALERT_NOTICES = _shared_gauge(
    "penstock_alert_notices",
    "notices of the last day: pending, sent or failed",
    *ENVIRONMENT_LABELS,
    "state",
)

AUDIT_ENTRIES = _counter("penstock_audit_entries", "calls recorded in the audit log")
AUDIT_FAILURES = _counter(
    "penstock_audit_failures", "audit entries that could not be stored; the broker's log has them"
)
AUDIT_COUNTED_CALLS = _counter(
    "penstock_audit_counted_calls", "calls of unknown callers beyond those with an audit entry of their own"
)

QUOTA_LABELS = (*ENVIRONMENT_LABELS, "quota")
QUOTA_LIMIT = _shared_gauge("penstock_quota_limit", "limit of a quota of an environment", *QUOTA_LABELS)
QUOTA_USED = _shared_gauge(
    "penstock_quota_used", "what all brokers use of a quota; requests are refused at its limit", *QUOTA_LABELS
)
QUOTA_REFUSED = _counter(
    "penstock_quota_refused",
    "requests refused because a quota of the environment, or of a token in it, was used up",
    *QUOTA_LABELS,
)

EXPORTED_METRICS: tuple[ExportedMetric, ...] = (
    *(QUEUE_DEPTH, QUEUE_INFLIGHT, QUEUE_OLDEST_AGE, QUEUE_CONCURRENCY_LIMIT, QUEUE_DELAYED),
    *(QUEUE_PAUSED, QUEUES_UNSAMPLED, QUEUE_TASKS),
    *(QUEUE_MESSAGES, QUEUE_WAIT),
    *(CLIENT_REQUESTS, OPERATION_REQUESTS, OPERATION_ITEMS, OPERATION_BATCHES, OPERATION_SECONDS),
    *(OPERATION_FAILURES, OPERATION_PENDING, PARKED_POPS),
    *(DATABASE_CONNECTIONS, DATABASE_ERRORS, VACUUM_HORIZON_AGE),
    *(WORKERS, WORKER_RESIDENT_MEMORY, WORKER_CPU, WORKER_ROWS_PENDING, WORKER_ROWS_DROPPED),
    *(RECONCILIATION_AGE, RECONCILIATION_DRIFT, RECONCILIATION_FINDINGS),
    *(METRIC_EVENTS_EMITTED, METRIC_EVENTS_DROPPED, METRIC_EVENTS_PENDING, METRIC_COUNTS_REPAIRED),
    *(LOAD, LOAD_DECISIONS, OPERATIONS_WAITING, OPERATIONS_DRAINED, OPERATIONS_PARKED, EVENT_LOOP_LAG),
    *(JOURNAL_RECORDS, JOURNAL_BYTES, DATABASE_OUTAGE),
    *(DEAD_JOB_COUNT, DEAD_LETTERS, DEAD_LETTER_OLDEST_AGE, DEAD_LETTER_DRIFT, DEAD_LETTER_RECOUNT_AGE),
    *(PIPELINE_QUERY_RUNNING, PIPELINE_QUERY_FAILURES, PIPELINE_QUERY_RESTARTS),
    *(PIPELINE_REPORT_AGE, PIPELINE_FRESHNESS_AGE, PIPELINE_LAG, PIPELINE_INPUT_RATE),
    *(PIPELINE_PROCESSED_RATE, PIPELINE_BATCH_DURATION, PIPELINE_REJECTED, PIPELINE_LOST),
    *(ALERT_EVALUATION_LAG, ALERT_EVALUATION_DURATION, ALERT_EVALUATIONS, ALERT_EVALUATION_FAILURES),
    *(INCIDENTS, ALERT_NOTICES),
    *(AUDIT_ENTRIES, AUDIT_FAILURES, AUDIT_COUNTED_CALLS),
    *(QUOTA_LIMIT, QUOTA_USED, QUOTA_REFUSED),
)
