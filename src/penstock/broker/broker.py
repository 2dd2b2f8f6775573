"""One broker process: the operations on durable queues, and what they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.batching import Batcher
from penstock.broker.context import BrokerContext
from penstock.broker.dead_letters.letters import DeadLetters
from penstock.broker.diagnostics import Diagnostics
from penstock.broker.encryption import PayloadCipher
from penstock.broker.journal.push_journal import Journal
from penstock.broker.overload.deferred import DeferredWrites
from penstock.broker.overload.drain import Drain, DrainPlan
from penstock.broker.overload.load import DEFAULTS, Decision, LoadMonitor, Threshold, thresholds
from penstock.broker.overload.operation_actions import OperationActions
from penstock.broker.queues.ack import Acks
from penstock.broker.queues.admin import GroupAdmin, QueueAdmin
from penstock.broker.queues.id_cache import IdCache
from penstock.broker.queues.message_actions import MessageActions
from penstock.broker.queues.name_registry import QueueNameRegistry
from penstock.broker.queues.pop import Pops
from penstock.broker.queues.push import Pushes
from penstock.broker.self_metrics.queue_metrics import QueueMetrics
from penstock.broker.wakeups import ParkedPops, PopWakeups
from penstock.clock import Clock, system_clock
from penstock.config import Settings
from penstock.durable.notifications import News
from penstock.durable.pool import Database
from penstock.errors import Overloaded


@dataclass(frozen=True, slots=True)
class OverloadSettings:
    """What is done about more than can be done."""

    is_managed: bool = True
    wait_s: float = 1.0
    spike_s: float = 10.0
    thresholds: Mapping[str, Threshold] = field(default_factory=lambda: DEFAULTS)
    plan: DrainPlan = field(default_factory=DrainPlan)

    @classmethod
    def from_settings(cls, settings: Settings) -> OverloadSettings:
        return cls(
            settings.load_management,
            settings.load_wait_s,
            settings.load_spike_s,
            thresholds(settings),
            DrainPlan.of(settings),
        )


class Broker:
    """Push, pop and settle. One per process and event loop; `start` and `stop` may be called twice."""

    def __init__(
        self,
        database: Database,
        metrics: QueueMetrics,
        *,
        lease_ms: int,
        cipher: PayloadCipher | None = None,
        names: QueueNameRegistry | None = None,
        journal: Journal | None = None,
        overload: OverloadSettings | None = None,
        clock: Clock = system_clock,
    ) -> None:
        overload = overload or OverloadSettings()
        self.database = database
        self.diagnostics = Diagnostics(database)
        self.cipher = cipher or PayloadCipher()
        self.id_cache = IdCache(database, names)
        self.parked_pops = ParkedPops()
        self.notifications = News(
            database.url,
            ready=self.parked_pops.wake,
            changed=self.id_cache.invalidate_queue_id,
            missed=self._missed,
        )
        wakeups = PopWakeups(self.parked_pops, self.notifications)
        context = BrokerContext(database, self.id_cache, metrics, wakeups, self.cipher)
        self.load = LoadMonitor(
            database,
            overload.thresholds,
            wait_s=overload.wait_s,
            spike_s=overload.spike_s,
            enabled=overload.is_managed,
        )
        self.journal = journal
        self.deferred_writes = DeferredWrites(context, self.load, journal)
        self.drain = Drain(context, self.deferred_writes, overload.plan)
        self.deferred_writes.notify_work = self.drain.notify_work
        self.pushes = Pushes(context, self.load, self.deferred_writes)
        self.pops = Pops(context, lease_ms, clock)
        self.acks = Acks(context, self.pushes, self.deferred_writes)
        self.operations = OperationActions(context, self.deferred_writes)
        self.queues = QueueAdmin(context, self.notifications)
        self.groups = GroupAdmin(context, self.notifications)
        self.message_actions = MessageActions(context)
        self.dead_letters = DeadLetters(context)
        self.batchers: dict[str, Batcher[Any, Any]] = {
            "push": self.pushes.batcher,
            "pop": self.pops.batcher,
            "ack": self.acks.batcher,
            "extend": self.acks.extend_batcher,
            "spill push": self.deferred_writes.pushes,
            "spill ack": self.deferred_writes.acks,
        }
        self.load.watch(self.batchers)
        self.push = self.pushes.push
        self.pop = self.pops.pop
        self.pop_any = self.pops.pop_any
        self.release_lease = self.pops.release_lease
        self.ack = self.acks.ack
        self.extend = self.acks.extend
        self.transaction = self.acks.transaction
        self.notify_ready = wakeups.notify

    async def start(self) -> None:
        await self.notifications.start()
        await self.load.start()
        await self.drain.start()

    async def stop(self) -> None:
        """Finish what is in flight."""
        await self.notifications.stop()
        await self.drain.stop()
        await self.load.stop()
        for batcher in self.batchers.values():
            await batcher.drain()

    def admit(self, kind: str) -> Decision:
        """Whether a request of this kind is carried out or spilled; raises Overloaded if it is neither.

        While PostgreSQL is away the journal decides about pushes; nothing else can be done then.
        """
        if self.database.outage.is_active:
            if kind != "push" or self.journal is None:
                self.database.outage.raise_if_active()
            return Decision.EXECUTE
        decision = self.load.decide(kind)
        if decision is Decision.REFUSE:
            raise Overloaded(self.load.retry_after_s(kind))
        return decision

    def _missed(self) -> None:
        """Options may have changed and queues may have gone unheard: look everything up again."""
        self.id_cache.invalidate_all()
        self.parked_pops.wake_all()
