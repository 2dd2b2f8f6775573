"""What the operations of one broker process share."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.broker.encryption import Sealer
from penstock.broker.queues.id_cache import Directory
from penstock.broker.ready import Ready
from penstock.broker.self_metrics.queue_metrics import QueueMetrics
from penstock.durable.pool import Database


@dataclass(frozen=True, slots=True)
class Workbench:
    database: Database
    directory: Directory
    metrics: QueueMetrics
    ready: Ready
    sealer: Sealer
