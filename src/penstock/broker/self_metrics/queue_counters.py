"""Totals of each queue and group since this process started, for a bounded number of names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from penstock.broker.self_metrics.minute import MAX_QUEUES, QUEUE_COLUMNS, QueueKey
from penstock.broker.self_metrics.queue_metrics import QueueTally
from penstock.model import Scope
from penstock.telemetry import OVERFLOW


@dataclass(slots=True)
class QueueTotals:
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(QUEUE_COLUMNS, 0))
    waits: int = 0
    wait_ms: int = 0


EVENT_LABELS: Final = {
    "push_messages": "pushed",
    "pop_messages": "popped",
    "completed": "completed",
    "failed": "failed",
    "released": "released",
    "dead_letters": "dead",
    "expired": "expired",
}
"""Columns of a queue's row, and the values of their metric label."""


class QueueCounters:
    """The first `max_queues` queues and groups have counters of their own; all others of an environment share
    one."""

    def __init__(self, max_queues: int = MAX_QUEUES) -> None:
        self._max_queues = max_queues
        self.totals: dict[QueueKey, QueueTotals] = {}

    def add_tally(self, scope: Scope, queue: str, group: str, tally: QueueTally) -> None:
        key = (scope, queue, group)
        totals = self.totals.get(key)
        if totals is None:
            if len(self.totals) >= self._max_queues:
                key = (scope, OVERFLOW, "")
            totals = self.totals.setdefault(key, QueueTotals())
        for column, counter in QUEUE_COLUMNS.items():
            totals.counts[column] += tally.counters.get(counter, 0)
        totals.waits += len(tally.wait_times_ms)
        totals.wait_ms += sum(tally.wait_times_ms)
