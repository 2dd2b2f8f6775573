"""One broker process: the operations on durable queues, and what they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.batching import Batcher
from penstock.broker.context import Workbench
from penstock.broker.dead_letters.letters import DeadLetters
from penstock.broker.encryption import Sealer
from penstock.broker.journal.push_journal import Journal
from penstock.broker.overload.deferred import Later
from penstock.broker.overload.drain import Drain, Plan
from penstock.broker.overload.load import DEFAULTS, Decision, Load, Threshold, thresholds
from penstock.broker.overload.operation_actions import Operations
from penstock.broker.queues.ack import Settlements
from penstock.broker.queues.admin import Queues
from penstock.broker.queues.groups import Groups
from penstock.broker.queues.id_cache import Directory
from penstock.broker.queues.message_actions import Records
from penstock.broker.queues.name_registry import QueueNames
from penstock.broker.queues.pop import Pops
from penstock.broker.queues.push import Pushes
from penstock.broker.ready import Ready
from penstock.broker.self_metrics.queue_metrics import QueueMetrics
from penstock.broker.wakeups import Waiters
from penstock.clock import Clock, system_clock
from penstock.config import Settings
from penstock.durable.notifications import News
from penstock.durable.pool import Database
from penstock.errors import Overloaded


@dataclass(frozen=True, slots=True)
class Overload:
    """What is done about more than can be done."""

    is_managed: bool = True
    wait_s: float = 1.0
    spike_s: float = 10.0
    thresholds: Mapping[str, Threshold] = field(default_factory=lambda: DEFAULTS)
    plan: Plan = field(default_factory=Plan)

    @classmethod
    def of(cls, settings: Settings) -> Overload:
        return cls(
            settings.load_management,
            settings.load_wait_s,
            settings.load_spike_s,
            thresholds(settings),
            Plan.of(settings),
        )


class Broker:
    """Push, pop and settle. One per process and event loop; `start` and `stop` may be called twice."""

    def __init__(
        self,
        database: Database,
        metrics: QueueMetrics,
        *,
        lease_ms: int,
        sealer: Sealer | None = None,
        names: QueueNames | None = None,
        journal: Journal | None = None,
        overload: Overload | None = None,
        clock: Clock = system_clock,
    ) -> None:
        overload = overload or Overload()
        self.database = database
        self.sealer = sealer or Sealer()
        self.directory = Directory(database, names)
        self.waiters = Waiters()
        self.news = News(
            database.url,
            ready=self.waiters.wake,
            changed=self.directory.forget_queue,
            missed=self._missed,
        )
        ready = Ready(self.waiters, self.news)
        bench = Workbench(database, self.directory, metrics, ready, self.sealer)
        self.load = Load(
            database,
            overload.thresholds,
            wait_s=overload.wait_s,
            spike_s=overload.spike_s,
            enabled=overload.is_managed,
        )
        self.journal = journal
        self.later = Later(bench, self.load, journal)
        self.drain = Drain(bench, self.later, overload.plan)
        self.later.soon = self.drain.soon
        self.pushes = Pushes(bench, self.load, self.later)
        self.pops = Pops(bench, lease_ms, clock)
        self.settlements = Settlements(bench, self.pushes, self.later)
        self.operations = Operations(bench, self.later)
        self.queues = Queues(bench, self.news)
        self.groups = Groups(bench, self.news)
        self.records = Records(bench)
        self.dead_letters = DeadLetters(bench)
        self.batchers: dict[str, Batcher[Any, Any]] = {
            "push": self.pushes.batcher,
            "pop": self.pops.batcher,
            "ack": self.settlements.acks,
            "extend": self.settlements.extends,
            "spill push": self.later.pushes,
            "spill ack": self.later.acks,
        }
        self.load.watch(self.batchers)
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
        await self.load.start()
        await self.drain.start()

    async def stop(self) -> None:
        """Finish what is in flight."""
        await self.news.stop()
        await self.drain.stop()
        await self.load.stop()
        for batcher in self.batchers.values():
            await batcher.drain()

    def admit(self, kind: str) -> Decision:
        """Whether a request of this kind is carried out or spilled; raises Overloaded if it is neither.

        While PostgreSQL is away the journal decides about pushes; nothing else can be done then.
        """
        if self.database.outage.lasts:
            if kind != "push" or self.journal is None:
                self.database.outage.check()
            return Decision.EXECUTE
        decision = self.load.decide(kind)
        if decision is Decision.REFUSE:
            raise Overloaded(self.load.retry_after_s(kind))
        return decision

    def _missed(self) -> None:
        """Options may have changed and queues may have gone unheard: look everything up again."""
        self.directory.forget_all()
        self.waiters.wake_all()
