"""Periodic maintenance: rotate and drop chunks, apply retention, prune small tables, compare totals.

Every broker process has one maintenance task, and one process in the cluster works: the one that holds the
advisory lock. The others try to acquire the lock once per interval, so one of them takes over when that
process or its connection dies. Each step of a round has a time budget; unfinished work continues in the next
round, which then starts sooner. A successor needs nothing that is only in memory.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from penstock.background import BackgroundTask
from penstock.clock import Clock, system_clock, to_utc
from penstock.config import Settings
from penstock.durable import worker_minutes
from penstock.durable.access.audit_store import AuditStore
from penstock.durable.annotations import AnnotationStore
from penstock.durable.cluster_lock import ClusterLock
from penstock.durable.dead_letters import dead_letter_counts
from penstock.durable.deferred_operations import DeferredOperations
from penstock.durable.reconciliation import Reconciliation
from penstock.durable.storage import chunks, retention, vacuum
from penstock.durable.storage.retention import DroppedMessages
from penstock.durable.trace_log import TraceLog
from penstock.errors import PenstockError
from penstock.model import Scope

logger = logging.getLogger(__name__)

STEP_BUDGET_S = 2.0
RECOUNT_BUDGET_S = 1.0
SHORT_INTERVAL_S = 5.0
"""Pause after an unfinished round: long enough that moving old messages stays a background job."""
MIN_DELTAS_FOR_SHORT_INTERVAL = 1_000
"""With this many changes of dead letter counts in a round, the next round starts sooner."""
OPERATIONS_PER_PRUNE = 5_000

ExpiredCallback = Callable[[Scope, int, str, str, int], None]
"""Receives scope, queue id, queue, group and number of messages."""


@dataclass(frozen=True, slots=True)
class MaintenancePlan:
    """Intervals and ages of the maintenance work."""

    interval_s: float = 30.0
    chunk_bytes: int = 1 << 30
    chunk_age: timedelta = timedelta(hours=6)
    trace_age: timedelta = timedelta(days=7)
    operation_age: timedelta = timedelta(hours=1)
    minute_age: timedelta = timedelta(days=30)
    reconcile_interval_s: float = 600.0
    audit_age: timedelta = timedelta(days=365)
    annotation_age: timedelta = timedelta(days=400)  # as the hour tier of the charts

    @classmethod
    def from_settings(cls, settings: Settings) -> MaintenancePlan:
        return cls(
            settings.maintenance_s,
            settings.chunk_mb << 20,
            timedelta(hours=settings.chunk_hours),
            timedelta(days=settings.trace_days),
            timedelta(seconds=settings.operation_keep_s),
            timedelta(days=settings.worker_metrics_days),
            settings.reconcile_s,
            timedelta(days=settings.audit_days),
        )


class Maintenance(BackgroundTask):
    """Run maintenance in rounds.

    `stop` interrupts a round: the current step takes effect as a whole or not at all. `on_expired` receives
    the messages that a group will never get because their retention or time to live is over.
    `notify_deferred` is called when deferred operations wait, because the broker that accepted them may have
    died.
    """

    task_name = "maintenance"

    def __init__(
        self,
        url: str,
        plan: MaintenancePlan,
        on_expired: ExpiredCallback | None = None,
        notify_deferred: Callable[[], None] | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self._url = url
        self._plan = plan
        self._on_expired = on_expired
        self._notify_deferred = notify_deferred
        self._clock = clock
        self._lock: ClusterLock | None = None
        self._last_retained_partition = 0
        self._has_reconciled = False
        self.rounds = 0

    async def stop(self) -> None:
        await super().stop()
        await self._release_lock()

    @property
    def is_leader(self) -> bool:
        """Whether this process holds the lock."""
        return self._lock is not None

    async def run_round(self) -> bool:
        """Run all steps if this process holds or gets the lock; return whether work is unfinished."""
        if self._lock is None or self._lock.is_closed:
            self._lock = await ClusterLock.acquire(self._url)
        lock = self._lock
        if lock is None:
            return False
        is_unfinished = False
        steps: tuple[Callable[[ClusterLock], Awaitable[bool]], ...] = (
            self._record_xid_clock,
            self._rotate_chunks,
            self._apply_retention,
            self._expire_positions,
            self._reclaim_chunks,
            self._prune_traces,
            self._check_deferred_operations,
            self._fold_dead_letter_counts,
            self._assign_error_keys,
            self._recount_dead_letters,
            self._prune_minutes,
            self._prune_audit_log,
            self._prune_annotations,
            self._reconcile,
            self._vacuum,
        )
        for step in steps:
            try:
                is_unfinished = await step(lock) or is_unfinished
            except PenstockError as error:
                if lock.is_closed:
                    raise
                logger.warning("Maintenance postponed %s: %s", step.__name__.strip("_"), error.detail)
            except Exception:
                # A step that fails must not prevent the other steps.
                logger.exception("Maintenance failed at %s", step.__name__.strip("_"))
                if lock.is_closed:
                    raise
        self.rounds += 1
        return is_unfinished

    async def _run(self) -> None:
        # Processes that start together must not try to acquire the lock together in every round.
        await asyncio.sleep(random.uniform(0, min(self._plan.interval_s, 5.0)))
        while True:
            is_unfinished = False
            try:
                is_unfinished = await self.run_round()
            except PenstockError as error:
                logger.warning("Maintenance waits for the database: %s", error.detail)
                await self._release_lock()
            except Exception:
                logger.exception("A round of maintenance failed")
                await self._release_lock()
            interval_s = self._plan.interval_s
            await asyncio.sleep(min(SHORT_INTERVAL_S, interval_s) if is_unfinished else interval_s)

    async def _release_lock(self) -> None:
        lock, self._lock = self._lock, None
        self._has_reconciled = False
        if lock is not None:
            await lock.close()

    async def _record_xid_clock(self, lock: ClusterLock) -> bool:
        await vacuum.record_xid_clock(lock)
        return False

    async def _rotate_chunks(self, lock: ClusterLock) -> bool:
        await chunks.rotate(lock, self._plan.chunk_bytes, self._plan.chunk_age)
        return False

    async def _apply_retention(self, lock: ClusterLock) -> bool:
        """Visit all partitions, or as many as the budget allows; the next round continues after them."""
        is_time_over = chunks.time_budget(STEP_BUDGET_S)
        while not is_time_over():
            last_partition, dropped = await retention.apply_retention(lock, self._last_retained_partition)
            self._report_expired("retention", dropped)
            self._last_retained_partition = last_partition or 0
            if last_partition is None:
                return False
        return True

    async def _expire_positions(self, lock: ClusterLock) -> bool:
        is_time_over = chunks.time_budget(STEP_BUDGET_S)
        has_more = True
        while has_more and not is_time_over():
            has_more, dropped = await retention.expire_idle_positions(lock)
            self._report_expired("time to live", dropped)
        return has_more

    async def _reclaim_chunks(self, lock: ClusterLock) -> bool:
        return (await chunks.reclaim(lock, chunks.time_budget(STEP_BUDGET_S))).unfinished

    async def _prune_traces(self, lock: ClusterLock) -> bool:
        before = to_utc(self._clock()) - self._plan.trace_age
        return await _prune(TraceLog(lock).prune, before)

    async def _check_deferred_operations(self, lock: ClusterLock) -> bool:
        """Prune completed operations, and have this broker drain lanes whose broker died."""
        operations = DeferredOperations(lock)
        is_time_over = chunks.time_budget(STEP_BUDGET_S)
        has_more = True
        while has_more and not is_time_over():
            pruned = await operations.prune_completed(
                self._plan.operation_age.total_seconds(), OPERATIONS_PER_PRUNE
            )
            has_more = pruned == OPERATIONS_PER_PRUNE
        if self._notify_deferred is not None and await operations.seconds_until_due() is not None:
            self._notify_deferred()
        return has_more

    async def _fold_dead_letter_counts(self, lock: ClusterLock) -> bool:
        """Fold all deltas into the counts. After many deltas more are expected, so the next round starts
        sooner."""
        is_time_over = chunks.time_budget(STEP_BUDGET_S)
        folded = total = await dead_letter_counts.fold_deltas(lock)
        while folded >= dead_letter_counts.DELTAS_PER_FOLD and not is_time_over():
            folded = await dead_letter_counts.fold_deltas(lock)
            total += folded
        await dead_letter_counts.prune_records(lock)
        return total >= MIN_DELTAS_FOR_SHORT_INTERVAL

    async def _assign_error_keys(self, lock: ClusterLock) -> bool:
        is_time_over = chunks.time_budget(STEP_BUDGET_S)
        has_more = True
        while has_more and not is_time_over():
            has_more = await dead_letter_counts.assign_error_keys(lock)
        return has_more

    async def _recount_dead_letters(self, lock: ClusterLock) -> bool:
        """Recount some slices if a recount is due; the next round continues after them."""
        if not await dead_letter_counts.is_recount_due(lock):
            return False
        is_time_over = chunks.time_budget(RECOUNT_BUDGET_S)
        while not is_time_over():
            if (await dead_letter_counts.recount(lock)).ended:
                break
        return False

    async def _prune_minutes(self, lock: ClusterLock) -> bool:
        before = to_utc(self._clock()) - self._plan.minute_age
        return await _prune(partial(worker_minutes.prune_minutes, lock), before)

    async def _prune_audit_log(self, lock: ClusterLock) -> bool:
        before = to_utc(self._clock()) - self._plan.audit_age
        return await _prune(AuditStore(lock).prune, before)

    async def _prune_annotations(self, lock: ClusterLock) -> bool:
        before = to_utc(self._clock()) - self._plan.annotation_age
        return await _prune(AnnotationStore(lock).prune, before)

    async def _reconcile(self, lock: ClusterLock) -> bool:
        """Reconcile some queues if it is due; the next round continues after them.

        It is due when this process becomes the leader, and then after every interval.
        """
        is_first, self._has_reconciled = not self._has_reconciled, True
        reconciliation = Reconciliation(lock)
        if not is_first and not await reconciliation.is_due(self._plan.reconcile_interval_s):
            return False
        is_time_over = chunks.time_budget(RECOUNT_BUDGET_S)
        ended = False
        while not ended and not is_time_over():
            ended = await reconciliation.run_step()
        return not ended

    async def _vacuum(self, lock: ClusterLock) -> bool:
        for table in await vacuum.vacuum_busy_tables(lock):
            logger.debug("Vacuumed %s", table)
        return False

    def _report_expired(self, reason: str, dropped: list[DroppedMessages]) -> None:
        for batch in dropped:
            logger.info(
                "The %s of %d messages of queue %r, group %r is over",
                reason,
                batch.messages,
                batch.queue,
                batch.group,
            )
            if self._on_expired is not None:
                self._on_expired(batch.scope, batch.queue_id, batch.queue, batch.group, batch.messages)


async def _prune(prune_batch: Callable[[datetime], Awaitable[bool]], before: datetime) -> bool:
    """Delete rows from before a time in batches within the budget; whether there may be more."""
    is_time_over = chunks.time_budget(STEP_BUDGET_S)
    has_more = True
    while has_more and not is_time_over():
        has_more = await prune_batch(before)
    return has_more
