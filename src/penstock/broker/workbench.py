"""What the operations of one broker process share."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.broker.directory import Directory
from penstock.broker.metrics import QueueMetrics
from penstock.broker.ready import Ready
from penstock.broker.sealing import Sealer
from penstock.durable.pool import Database


@dataclass(frozen=True, slots=True)
class Workbench:
    database: Database
    directory: Directory
    metrics: QueueMetrics
    ready: Ready
    sealer: Sealer
