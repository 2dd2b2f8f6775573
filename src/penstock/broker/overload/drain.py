"""Carrying out what was accepted: the journal is taken over into lanes, lanes are drained in their order.

Every broker process drains, and none waits for another: a lane is held for one transaction by whoever comes
first. In every round acks go first, then pushes, so neither waits for the other to be done. A round comes
when something was accepted here, when a lane that waits becomes due, and when maintenance has found a lane
that nobody looks after because its broker died. With nothing waiting the database is not asked.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock.broker.context import BrokerContext
from penstock.broker.overload.deferred import DATABASE_DOWN, DeferredWrites, JournalRecord, record_decoder
from penstock.config import Settings
from penstock.durable import deferred_operations, log
from penstock.durable.deferred_operations import ACK, PUSH, Drained, PushOperation, Undrainable
from penstock.durable.log import PartitionName
from penstock.errors import PenstockError, QueueDeleted
from penstock.model import Scope

logger = logging.getLogger(__name__)

LANES, OPERATIONS = 64, 50
"""What one transaction carries out at most."""
CAREFUL_LANES = 32
LOOK_S = 0.25
"""How often the journal is looked at, which costs next to nothing."""
AWAY_S = 1.0


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """How often a failing operation is tried, how long it waits in between, what its lane does at last."""

    attempts: int = 5
    backoff_ms: int = 200
    hold: bool = False

    @classmethod
    def of(cls, settings: Settings) -> DrainPlan:
        return cls(attempts=settings.operation_attempts, hold=settings.failed_operation == "hold")


class Drain:
    """The background task. `start` and `stop` may be called twice; a round cut short has no effect."""

    def __init__(self, context: BrokerContext, deferred_writes: DeferredWrites, plan: DrainPlan | None = None) -> None:
        self._context = context
        self._deferred_writes = deferred_writes
        self._plan = plan or DrainPlan()
        self._something = asyncio.Event()
        self._something.set()  # there may be something from before
        self._due_at = math.inf
        self._task: asyncio.Task[None] | None = None
        self.drained = 0
        self.failed = 0

    async def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="drain")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def notify_work(self) -> None:
        """Something was accepted."""
        self._something.set()

    async def round(self) -> bool:
        """Take over what the journal has and carry out what is due; whether there may be more."""
        journal = self._deferred_writes.journal
        if journal is not None and journal.has_records:
            taken = await journal.replay(self._take_over, self._position)
            if taken:
                logger.info("took over %d pushes from the journal", taken)
        more = [await self._drain(kind) for kind in (ACK, PUSH)]
        return any(more)

    async def _drain(self, kind: str) -> bool:
        database = self._context.database
        try:
            done = await deferred_operations.drain(database, kind, lanes=LANES, operations=OPERATIONS)
        except Undrainable as error:
            logger.info("%s: looking for the operation that is to blame", error.detail)
            done = await deferred_operations.drain_carefully(
                database,
                kind,
                lanes=CAREFUL_LANES,
                attempts=self._plan.attempts,
                backoff_ms=self._plan.backoff_ms,
                hold=self._plan.hold,
            )
        for one in done:
            self._tell(one)
        return any(one.operations for one in done)

    def _tell(self, one: Drained) -> None:
        """Count what was done, and wake whoever waits for it."""
        self.drained += one.operations
        if one.outcome == "parked":
            self.failed += 1
            logger.error("an operation of queue %r failed for good and was parked", one.queue)
        elif one.outcome == "pushed":
            if one.messages:
                self._context.metrics.pushed(one.scope, one.queue_id, one.queue, one.messages)
                self._context.wakeups.notify(one.queue_id, 1, (one.partition_id,))
        elif one.queue_id is not None and one.outcome not in ("lease_lost", "not_leased"):
            self._context.metrics.settled(
                one.scope, one.queue_id, one.queue, one.group, one.outcome, one.run_ms or []
            )
            self._context.wakeups.notify(one.queue_id, 1, (one.partition_id,))

    async def _position(self, journal_id: uuid.UUID) -> int:
        return await deferred_operations.journal_position(self._context.database, journal_id)

    async def _take_over(self, journal_id: uuid.UUID, position: int, records: Sequence[bytes]) -> None:
        """What the journal accepted goes to the end of its lanes, whatever limits there are on partitions."""
        decoded = [record_decoder.decode(record) for record in records]

        async def take_over() -> None:
            wanted = [await self._operation(record) for record in decoded]
            await deferred_operations.take_over(
                self._context.database, journal_id, position, wanted, DATABASE_DOWN
            )

        try:
            await take_over()
        except QueueDeleted:
            self._context.id_cache.invalidate_all()
            await take_over()

    async def _operation(self, record: JournalRecord) -> PushOperation:
        name, scope = PartitionName(record.queue, record.partition), Scope(*record.scope)
        known = await self._context.id_cache.resolve_partitions(scope, [name])
        ids = known.get(name) or await log.add_partition(self._context.database, scope, name)
        return PushOperation(record.operation_id, self._deferred_writes.segment(record, ids))

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):  # wait_for may lose the cancellation that stops this
                    await self._something.wait()
            journal = self._deferred_writes.journal
            has_journal = journal is not None and journal.has_records
            if not (has_journal or self._something.is_set() or time.monotonic() >= self._due_at):
                continue
            self._something.clear()
            try:
                while await self.round():
                    pass
                due_s = await deferred_operations.next_due_s(self._context.database)
                self._due_at = math.inf if due_s is None else time.monotonic() + due_s + LOOK_S
            except PenstockError as error:
                logger.debug("nothing was drained: %s", error.detail)
                self._due_at = time.monotonic() + AWAY_S
            except Exception:
                # What waits must not be forgotten because one round of it went wrong.
                logger.exception("draining failed and is tried again")
                self._due_at = time.monotonic() + AWAY_S
