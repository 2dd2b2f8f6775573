"""The objects that all operations of one broker process share."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.broker.durable_store import DurableStore
from penstock.broker.queues.id_cache import IdCache
from penstock.broker.self_metrics.queue_metrics import QueueMetrics
from penstock.broker.wakeups import PopWakeups
from penstock.durable.pool import Database
from penstock.encryption import PayloadCipher


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """Shared dependencies, passed to every operation of the broker."""

    database: Database
    store: DurableStore
    id_cache: IdCache
    metrics: QueueMetrics
    wakeups: PopWakeups
    cipher: PayloadCipher
    max_response_bytes: int
    """Payload bytes in one pop or page of messages."""
