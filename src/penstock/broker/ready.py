"""One place to say that a queue may have something ready: wakes pops here and in other brokers."""

from __future__ import annotations

from collections.abc import Collection

from penstock.broker.wakeups import ParkedPops
from penstock.durable.notifications import News


class PopWakeups:
    def __init__(self, waiters: ParkedPops, news: News | None = None) -> None:
        self.parked_pops = waiters
        self._news = news

    def notify(self, queue_id: int, count: int = 1, partition_ids: Collection[int] | None = None) -> None:
        """There may be work for `count` pops of every group of the queue, in these partitions or in any."""
        self.parked_pops.wake(queue_id, count, partition_ids)
        if self._news is not None:
            self._news.tell_ready(queue_id, count, partition_ids)
