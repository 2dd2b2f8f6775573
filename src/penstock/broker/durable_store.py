"""The durable layer as the broker and its API see it: the pool, one store per topic, and their row types.

The API imports the types from here, so that only the broker depends on the durable layer.
"""

from __future__ import annotations

from penstock.config import Settings
from penstock.durable.annotations import Annotation, AnnotationFilter, AnnotationStore, NewAnnotation
from penstock.durable.catalog import (
    LabelTotals,
    MessageTotals,
    PartitionSummary,
    QueueCatalog,
    QueueHoldings,
    QueueSummary,
)
from penstock.durable.consumer_groups import (
    ConsumerGroups,
    GroupPosition,
    GroupSummary,
    LaggingPosition,
    QueueWithGroup,
    SeekResult,
)
from penstock.durable.dead_letters.dead_letter_store import (
    DeadLetterFilter,
    DeadLetterStore,
)
from penstock.durable.dead_letters.error_group_store import (
    ERROR_GROUP_STATES,
    ErrorGroupChange,
    ErrorGroupStatus,
    ErrorGroupStore,
)
from penstock.durable.dead_letters.jobs import BulkChange, DeadLetterJob, JobSample, JobStore
from penstock.durable.deferred_operations import (
    DeferredOperations,
    OperationRecord,
    OperationSummary,
)
from penstock.durable.message_search_store import MessageSearchStore, SearchFilter
from penstock.durable.pool import Database
from penstock.durable.queue_gauges import GaugeReader, ListedQueue, NamedQueueGauge
from penstock.durable.reconciliation import Reconciliation
from penstock.durable.stored_messages import (
    ListedMessage,
    MessageQuery,
    StoredMessages,
)
from penstock.durable.trace_log import MAX_TRACE_COUNT, MessageTrace, NamedTrace, Trace, TraceLog
from penstock.durable.worker_minutes import (
    LagDigest,
    QueueBucket,
    QueueLagDigest,
    QueueWindow,
    ThroughputBucket,
    WorkerHealthBucket,
    WorkerMinutes,
)

__all__ = [
    "ERROR_GROUP_STATES",
    "MAX_TRACE_COUNT",
    "Annotation",
    "AnnotationFilter",
    "AnnotationStore",
    "BulkChange",
    "DeadLetterFilter",
    "DeadLetterJob",
    "DurableStore",
    "ErrorGroupChange",
    "ErrorGroupStatus",
    "GroupPosition",
    "GroupSummary",
    "JobSample",
    "LabelTotals",
    "LagDigest",
    "LaggingPosition",
    "ListedMessage",
    "ListedQueue",
    "MessageQuery",
    "MessageTotals",
    "MessageTrace",
    "NamedQueueGauge",
    "NamedTrace",
    "NewAnnotation",
    "OperationRecord",
    "OperationSummary",
    "PartitionSummary",
    "QueueBucket",
    "QueueHoldings",
    "QueueLagDigest",
    "QueueSummary",
    "QueueWindow",
    "QueueWithGroup",
    "SearchFilter",
    "SeekResult",
    "ThroughputBucket",
    "Trace",
    "WorkerHealthBucket",
    "create_database",
]


class DurableStore:
    """One store per topic, all over the same pool."""

    def __init__(self, database: Database) -> None:
        self.catalog = QueueCatalog(database)
        self.consumer_groups = ConsumerGroups(database)
        self.messages = StoredMessages(database)
        self.message_search = MessageSearchStore(database)
        self.dead_letters = DeadLetterStore(database)
        self.error_groups = ErrorGroupStore(database)
        self.jobs = JobStore(database)
        self.operations = DeferredOperations(database)
        self.traces = TraceLog(database)
        self.annotations = AnnotationStore(database)
        self.gauges = GaugeReader(database)
        self.worker_minutes = WorkerMinutes(database)
        self.reconciliation = Reconciliation(database)


def create_database(settings: Settings) -> Database:
    """Return a pool with the size of the settings; it connects at the first call."""
    return Database(settings.postgres_url, settings.postgres_pool)
