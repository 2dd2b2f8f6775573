"""One place to say that a queue may have something ready: wakes pops here and in other brokers."""

from __future__ import annotations

from penstock.broker.waiters import Waiters
from penstock.durable.news import News


class Ready:
    def __init__(self, waiters: Waiters, news: News | None = None) -> None:
        self.waiters = waiters
        self._news = news

    def announce(self, queue_id: int, count: int = 1) -> None:
        """There may be work for `count` pops of every group of the queue."""
        self.waiters.wake(queue_id, count)
        if self._news is not None:
            self._news.tell_ready(queue_id, count)
