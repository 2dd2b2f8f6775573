"""The broker of one process: all operations on durable queues and the objects they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.batching import BatcherState
from penstock.broker.context import BrokerContext
from penstock.broker.database_diagnostics import DatabaseDiagnostics
from penstock.broker.dead_letters.dead_letter_service import DeadLetterService
from penstock.broker.dead_letters.message_dead_letters import MessageDeadLetters
from penstock.broker.dead_letters.message_jobs import MessageJobs
from penstock.broker.durable_store import DurableStore
from penstock.broker.journal.push_journal import Journal
from penstock.broker.overload.deferred import DeferredWrites, OperationActions
from penstock.broker.overload.drain import Drain, DrainPlan
from penstock.broker.overload.load import (
    DEFAULT_THRESHOLDS,
    Decision,
    LoadMonitor,
    Threshold,
    read_thresholds,
)
from penstock.broker.queues.ack import Acks
from penstock.broker.queues.admin import GroupAdmin, QueueAdmin
from penstock.broker.queues.id_cache import IdCache
from penstock.broker.queues.log_search import MessageSearch
from penstock.broker.queues.message_actions import MessageActions
from penstock.broker.queues.message_lives import MessageLives
from penstock.broker.queues.name_registry import QueueNameRegistry
from penstock.broker.queues.pop import Pops
from penstock.broker.queues.push import Pushes
from penstock.broker.self_metrics.queue_metrics import QueueMetrics
from penstock.broker.wakeups import ParkedPops, PopWakeups
from penstock.clock import Clock, system_clock
from penstock.config import Settings
from penstock.durable.notifications import NotificationBus
from penstock.durable.pool import Database
from penstock.encryption import PayloadCipher
from penstock.errors import Overloaded
from penstock.model import MAX_RESPONSE_BYTES


@dataclass(frozen=True, slots=True)
class OverloadSettings:
    """Whether and how the broker defers and refuses requests."""

    enabled: bool = True
    wait_s: float = 1.0
    spike_s: float = 10.0
    thresholds: Mapping[str, Threshold] = field(default_factory=lambda: DEFAULT_THRESHOLDS)
    drain_plan: DrainPlan = field(default_factory=DrainPlan)

    @classmethod
    def from_settings(cls, settings: Settings) -> OverloadSettings:
        return cls(
            settings.load_management,
            settings.load_wait_s,
            settings.load_spike_s,
            read_thresholds(settings),
            DrainPlan.from_settings(settings),
        )


class Broker:
    """Push, pop and ack. One broker per process and event loop; `start` and `stop` may be called twice."""

    def __init__(
        self,
        database: Database,
        metrics: QueueMetrics,
        *,
        lease_ms: int,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        cipher: PayloadCipher | None = None,
        names: QueueNameRegistry | None = None,
        journal: Journal | None = None,
        overload: OverloadSettings | None = None,
        max_waiting: int | None = None,
        clock: Clock = system_clock,
    ) -> None:
        overload = overload or OverloadSettings()
        self.database = database
        self.store = DurableStore(database)
        self.diagnostics = DatabaseDiagnostics(database)
        self.cipher = cipher or PayloadCipher()
        self.id_cache = IdCache(database, names)
        # A promoted standby may lack the last rows of the primary, and give their ids to other rows.
        database.on_failover = self.id_cache.invalidate_all
        self.parked_pops = ParkedPops(max_waiting)
        self.notifications = NotificationBus(
            database.url,
            on_ready=self.parked_pops.wake,
            on_changed=self.id_cache.invalidate_queue_id,
            resync=self._resync,
        )
        wakeups = PopWakeups(self.parked_pops, self.notifications)
        self.id_cache.notify_created = wakeups.notify_created
        context = BrokerContext(
            database, self.store, self.id_cache, metrics, wakeups, self.cipher, max_response_bytes
        )
        self.load = LoadMonitor(
            database,
            overload.thresholds,
            wait_s=overload.wait_s,
            spike_s=overload.spike_s,
            enabled=overload.enabled,
        )
        self.journal = journal
        self.deferred_writes = DeferredWrites(context, self.load, journal)
        self.drain = Drain(context, self.deferred_writes, overload.drain_plan)
        self.deferred_writes.notify_work = self.drain.notify_work
        self.pushes = Pushes(context, self.load, self.deferred_writes)
        self.pops = Pops(context, lease_ms, clock)
        self.acks = Acks(context, self.pushes, self.deferred_writes)
        self.operations = OperationActions(context, self.deferred_writes)
        self.queues = QueueAdmin(context, self.notifications)
        self.groups = GroupAdmin(context, self.notifications)
        message_dead_letters = MessageDeadLetters(context, self.deferred_writes)
        self.message_actions = MessageActions(context, message_dead_letters)
        self.message_lives = MessageLives(self.store, self.message_actions)
        self.message_search = MessageSearch(self.store.message_search, self.cipher)
        self.dead_letters = DeadLetterService(self.store, message_dead_letters, MessageJobs(context))
        # The names appear in JSON and in metric labels.
        self.batchers: dict[str, BatcherState] = {
            "push": self.pushes.batcher,
            "pop": self.pops.batcher,
            "ack": self.acks.batcher,
            "extend": self.acks.extend_batcher,
            "create": self.id_cache.batcher,
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
        """Stop background tasks and finish all requests in flight."""
        await self.notifications.stop()
        await self.drain.stop()
        await self.load.stop()
        for batcher in self.batchers.values():
            await batcher.drain()
        self.diagnostics.close()

    def admit(self, kind: str) -> Decision:
        """Decide whether a request of this kind is executed or deferred. Raises Overloaded if it is refused.

        During an outage of PostgreSQL, pushes go to the journal if there is one, and all other requests raise
        DatabaseUnavailable.
        """
        if self.database.outage.is_active:
            if kind != "push" or self.journal is None:
                self.database.outage.raise_if_active()
            return Decision.EXECUTE
        decision = self.load.decide(kind)
        if decision is Decision.REFUSE:
            raise Overloaded(self.load.retry_after_s(kind))
        return decision

    def _resync(self) -> None:
        """Drop cached ids and wake all pops, because notifications of changes may have been missed."""
        self.id_cache.invalidate_all()
        self.parked_pops.wake_all()
