"""One broker process: the operations on durable queues, and what they share."""

from __future__ import annotations

from typing import Any

from penstock.broker.batcher import Batcher
from penstock.broker.directory import Directory
from penstock.broker.groups import Groups
from penstock.broker.metrics import QueueMetrics
from penstock.broker.pop import Pops
from penstock.broker.push import Pushes
from penstock.broker.queues import Queues
from penstock.broker.ready import Ready
from penstock.broker.records import Records
from penstock.broker.sealing import Sealer
from penstock.broker.settle import Settlements
from penstock.broker.waiters import Waiters
from penstock.broker.workbench import Workbench
from penstock.clock import Clock, system_clock
from penstock.durable.news import News
from penstock.durable.pool import Database


class Broker:
    """Push, pop and settle. One per process and event loop; `start` and `stop` may be called twice."""

    def __init__(
        self,
        database: Database,
        metrics: QueueMetrics,
        *,
        lease_ms: int,
        sealer: Sealer | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.sealer = sealer or Sealer()
        self.directory = Directory(database)
        self.waiters = Waiters()
        self.news = News(
            database.url,
            ready=self.waiters.wake,
            changed=self.directory.forget_queue,
            missed=self._missed,
        )
        ready = Ready(self.waiters, self.news)
        bench = Workbench(database, self.directory, metrics, ready, self.sealer)
        self.pushes = Pushes(bench)
        self.pops = Pops(bench, lease_ms, clock)
        self.settlements = Settlements(bench, self.pushes)
        self.queues = Queues(bench, self.news)
        self.groups = Groups(bench, self.news)
        self.records = Records(bench)
        self.batchers: dict[str, Batcher[Any, Any]] = {
            "push": self.pushes.batcher,
            "pop": self.pops.batcher,
            "ack": self.settlements.acks,
            "extend": self.settlements.extends,
        }
        self.push = self.pushes.push
        self.pop = self.pops.pop
        self.pop_any = self.pops.pop_any
        self.give_back = self.pops.give_back
        self.ack = self.settlements.ack
        self.extend = self.settlements.extend
        self.transaction = self.settlements.transaction
        self.announce = ready.announce

    async def start(self) -> None:
        await self.news.start()

    async def stop(self) -> None:
        """Finish what is in flight."""
        await self.news.stop()
        for batcher in self.batchers.values():
            await batcher.drain()

    def _missed(self) -> None:
        """Options may have changed and queues may have gone unheard: look everything up again."""
        self.directory.forget_all()
        self.waiters.wake_all()
