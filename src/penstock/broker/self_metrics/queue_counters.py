"""What happened to each queue and group since this process started, for a bounded number of names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from penstock.broker.self_metrics.minute import MOST_QUEUES, OF_QUEUES
from penstock.broker.self_metrics.queue_metrics import Tally
from penstock.telemetry import OVERFLOW


@dataclass(slots=True)
class QueueTotals:
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OF_QUEUES, 0))
    waits: int = 0
    wait_ms: int = 0


EVENTS: Final = {
    "push_messages": "pushed",
    "pop_messages": "popped",
    "completed": "completed",
    "failed": "failed",
    "dead_letters": "dead",
    "expired": "expired",
}
"""Columns of a queue's row, and what a label calls them."""


class QueueCounters:
    """The first queues and groups that are seen have counters of their own, the others share one."""

    def __init__(self, most: int = MOST_QUEUES) -> None:
        self._most = most
        self.totals: dict[tuple[str, str], QueueTotals] = {}

    def observe(self, queue: str, group: str, tally: Tally) -> None:
        found = self.totals.get((queue, group))
        if found is None:
            key = (queue, group) if len(self.totals) < self._most else (OVERFLOW, "")
            found = self.totals.setdefault(key, QueueTotals())
        for column, counter in OF_QUEUES.items():
            found.counts[column] += tally.counters.get(counter, 0)
        found.waits += len(tally.waits)
        found.wait_ms += sum(tally.waits)
