"""What must happen by itself: chunks opened and dropped, messages let go of, small tables kept small.

Every broker process has one of these, and one in the cluster works: the one that holds the advisory lock. The
others ask for it once per interval, so they take over when that process, or its connection, dies. A round is
bounded in time, kind of work by kind of work; what is left waits for the next round, which then comes sooner.
Nothing is kept in memory that a successor would miss.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from penstock.clock import Clock, system_clock, to_utc
from penstock.config import Settings
from penstock.durable import worker_minutes
from penstock.durable.dead_letters import dead_letter_counts
from penstock.durable.deferred_operations import DeferredOperations
from penstock.durable.maintenance_lock import MaintenanceLock
from penstock.durable.reconciliation import Reconciliation
from penstock.durable.storage import chunks, retention, vacuum
from penstock.durable.storage.retention import DroppedMessages
from penstock.durable.trace_log import TraceLog
from penstock.errors import PenstockError
from penstock.model import Scope

logger = logging.getLogger(__name__)

STEP_S = 2.0
"""What one kind of work may take of a round."""
SOONER_S = 5.0
"""Until the next round when something is left over: long enough that moving old messages stays a side job."""
MANY_DELTAS = 1_000
"""Changes to dead letters in one round from which they are worth a round of their own."""
RECOUNT_S = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How often, and what is due when."""

    interval_s: float = 30.0
    chunk_bytes: int = 1 << 30
    chunk_age: timedelta = timedelta(hours=6)
    trace_age: timedelta = timedelta(days=7)
    operation_age: timedelta = timedelta(hours=1)
    minute_age: timedelta = timedelta(days=30)
    reconcile_s: float = 600.0

    @classmethod
    def of(cls, settings: Settings) -> Plan:
        return cls(
            settings.maintenance_s,
            settings.chunk_mb << 20,
            timedelta(hours=settings.chunk_hours),
            timedelta(days=settings.trace_days),
            timedelta(seconds=settings.operation_keep_s),
            timedelta(days=settings.worker_metrics_days),
            settings.reconcile_s,
        )


class Maintenance:
    """The background task. `start` and `stop` may be called twice.

    `stop` cuts a round short: the step under way takes effect as a whole or not at all. `let_go` is told of
    messages that a group will never see because their time was over: scope, queue id, queue, group, how many.
    `lanes_wait` is called when there are operations to be carried out, in case nobody else knows.
    """

    def __init__(
        self,
        url: str,
        plan: Plan,
        let_go: Callable[[Scope, int, str, str, int], None] | None = None,
        lanes_wait: Callable[[], None] | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self._url = url
        self._plan = plan
        self._let_go = let_go
        self._lanes_wait = lanes_wait
        self._clock = clock
        self._session: MaintenanceLock | None = None
        self._after = 0
        self._reconciled = False
        self._task: asyncio.Task[None] | None = None
        self.rounds = 0

    async def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="maintenance")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._release()

    @property
    def leads(self) -> bool:
        """Whether this process is the one that works."""
        return self._session is not None

    async def round(self) -> bool:
        """Do what is due, if this process has or gets the lock; whether something is left over."""
        if self._session is None or self._session.is_closed:
            self._session = await MaintenanceLock.acquire(self._url)
        session = self._session
        if session is None:
            return False
        left = False
        steps: tuple[Callable[[MaintenanceLock], Awaitable[bool]], ...] = (
            self._read_clock,
            self._rotate,
            self._retain,
            self._expire,
            self._reclaim,
            self._prune,
            self._look_at_lanes,
            self._fold_dead,
            self._group_dead,
            self._recount_dead,
            self._forget_minutes,
            self._reconcile,
            self._vacuum,
        )
        for step in steps:
            try:
                left = await step(session) or left
            except PenstockError as error:
                if session.is_closed:
                    raise
                logger.warning("maintenance put off %s: %s", step.__name__.strip("_"), error.detail)
            except Exception:
                # One kind of work that fails must not be the end of the others.
                logger.exception("maintenance failed at %s", step.__name__.strip("_"))
                if session.is_closed:
                    raise
        self.rounds += 1
        return left

    async def _run(self) -> None:
        # Several processes that start together should not ask together for ever.
        await asyncio.sleep(random.uniform(0, min(self._plan.interval_s, 5.0)))
        while True:
            left = False
            try:
                left = await self.round()
            except PenstockError as error:
                logger.warning("maintenance waits for the database: %s", error.detail)
                await self._release()
            except Exception:
                logger.exception("a round of maintenance failed")
                await self._release()
            await asyncio.sleep(min(SOONER_S, self._plan.interval_s) if left else self._plan.interval_s)

    async def _release(self) -> None:
        session, self._session = self._session, None
        self._reconciled = False
        if session is not None:
            await session.close()

    async def _read_clock(self, session: MaintenanceLock) -> bool:
        await vacuum.record_xid_clock(session)
        return False

    async def _rotate(self, session: MaintenanceLock) -> bool:
        await chunks.rotate(session, self._plan.chunk_bytes, self._plan.chunk_age)
        return False

    async def _retain(self, session: MaintenanceLock) -> bool:
        """All partitions once, or as many as there is time for; the next round goes on behind them."""
        spent = chunks.time_budget(STEP_S)
        while not spent():
            last, gone = await retention.apply_retention(session, self._after)
            self._tell("retention", gone)
            self._after = last or 0
            if last is None:
                return False
        return True

    async def _expire(self, session: MaintenanceLock) -> bool:
        spent = chunks.time_budget(STEP_S)
        more = True
        while more and not spent():
            more, gone = await retention.expire_idle_positions(session)
            self._tell("time to live", gone)
        return more

    async def _reclaim(self, session: MaintenanceLock) -> bool:
        return (await chunks.reclaim(session, chunks.time_budget(STEP_S))).unfinished

    async def _prune(self, session: MaintenanceLock) -> bool:
        spent = chunks.time_budget(STEP_S)
        before = to_utc(self._clock()) - self._plan.trace_age
        more = True
        while more and not spent():
            more = await TraceLog(session).prune(before)
        return more

    async def _look_at_lanes(self, session: MaintenanceLock) -> bool:
        """Operations that are done are forgotten after a while; lanes whose broker died find another one."""
        spent = chunks.time_budget(STEP_S)
        more = True
        while more and not spent():
            gone = await DeferredOperations(session).prune_completed(
                self._plan.operation_age.total_seconds(), 5_000
            )
            more = gone == 5_000
        if self._lanes_wait is not None and await DeferredOperations(session).seconds_until_due() is not None:
            self._lanes_wait()
        return more

    async def _fold_dead(self, session: MaintenanceLock) -> bool:
        """All deltas of dead letters. Where many came, many will: the next round comes sooner."""
        spent = chunks.time_budget(STEP_S)
        folded = total = await dead_letter_counts.fold_deltas(session)
        while folded >= dead_letter_counts.DELTAS_PER_FOLD and not spent():
            folded = await dead_letter_counts.fold_deltas(session)
            total += folded
        await dead_letter_counts.prune_records(session)
        return total >= MANY_DELTAS

    async def _group_dead(self, session: MaintenanceLock) -> bool:
        spent = chunks.time_budget(STEP_S)
        more = True
        while more and not spent():
            more = await dead_letter_counts.assign_error_keys(session)
        return more

    async def _recount_dead(self, session: MaintenanceLock) -> bool:
        """Some slices of the recount, if one is due; the next round goes on behind them."""
        if not await dead_letter_counts.is_recount_due(session):
            return False
        spent = chunks.time_budget(RECOUNT_S)
        while not spent():
            if (await dead_letter_counts.recount(session)).ended:
                break
        return False

    async def _forget_minutes(self, session: MaintenanceLock) -> bool:
        spent = chunks.time_budget(STEP_S)
        before = to_utc(self._clock()) - self._plan.minute_age
        more = True
        while more and not spent():
            more = await worker_minutes.prune_minutes(session, before)
        return more

    async def _reconcile(self, session: MaintenanceLock) -> bool:
        """Some queues of the reconciliation, if one is due; the next round goes on behind them. One is due
        when this process begins to lead, and then again and again."""
        is_first, self._reconciled = not self._reconciled, True
        if not is_first and not await Reconciliation(session).is_due(self._plan.reconcile_s):
            return False
        spent = chunks.time_budget(RECOUNT_S)
        ended = False
        while not ended and not spent():
            ended = await Reconciliation(session).run_step()
        return not ended

    async def _vacuum(self, session: MaintenanceLock) -> bool:
        for name in await vacuum.vacuum_busy_tables(session):
            logger.debug("vacuumed %s", name)
        return False

    def _tell(self, why: str, gone: list[DroppedMessages]) -> None:
        for one in gone:
            logger.info(
                "%s is over for %d messages of queue %r, group %r", why, one.messages, one.queue, one.group
            )
            if self._let_go is not None:
                self._let_go(one.scope, one.queue_id, one.queue, one.group, one.messages)
