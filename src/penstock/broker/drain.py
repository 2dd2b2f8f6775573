"""Carrying out what was accepted: the journal is taken over into lanes, lanes are drained in their order.

Every broker process drains, and none waits for another: a lane is held for one transaction by whoever comes
first. In every round acks go first, then pushes, so neither waits for the other to be done. With nothing to
do a round comes every `IDLE_S`, and at once when something was accepted here.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import asyncpg

from penstock.broker.later import DATABASE_DOWN, JournalRecord, Later, record_decoder
from penstock.broker.workbench import Workbench
from penstock.config import Settings
from penstock.durable import log, operations
from penstock.durable.faults import QueueGone
from penstock.durable.log import PartitionName
from penstock.durable.operations import ACK, PUSH, Drained, PushOperation
from penstock.errors import PenstockError
from penstock.model import Scope

logger = logging.getLogger(__name__)

LANES, OPERATIONS = 64, 50
"""What one transaction carries out at most."""
CAREFUL_LANES = 32
IDLE_S = 0.5
FORGET_EVERY_S = 60.0
FORGET_STEP = 5_000


@dataclass(frozen=True, slots=True)
class Plan:
    """How often a failing operation is tried, what its lane does then, and how long what is done is kept."""

    attempts: int = 5
    backoff_ms: int = 200
    hold: bool = False
    keep_s: float = 3600.0

    @classmethod
    def of(cls, settings: Settings) -> Plan:
        return cls(
            attempts=settings.operation_attempts,
            hold=settings.failed_operation == "hold",
            keep_s=settings.operation_keep_s,
        )


class Drain:
    """The background task. `start` and `stop` may be called twice; a round cut short has no effect."""

    def __init__(self, bench: Workbench, later: Later, plan: Plan | None = None) -> None:
        self._at = bench
        self._later = later
        self._plan = plan or Plan()
        self._something = asyncio.Event()
        self._forget_at = time.monotonic() + FORGET_EVERY_S * random.random()
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

    def soon(self) -> None:
        """Something was accepted."""
        self._something.set()

    async def round(self) -> bool:
        """Take over what the journal has and carry out what is due; whether there may be more."""
        journal = self._later.journal
        if journal is not None and journal.waiting:
            taken = await journal.replay(self._take_over, self._position)
            if taken:
                logger.info("took over %d pushes from the journal", taken)
        more = [await self._drain(kind) for kind in (ACK, PUSH)]
        if time.monotonic() >= self._forget_at:
            await self._forget()
        return any(more)

    async def _drain(self, kind: str) -> bool:
        database = self._at.database
        try:
            done = await operations.drain(database, kind, lanes=LANES, operations=OPERATIONS)
        except asyncpg.PostgresError as error:
            logger.info("a lane cannot be drained (%s): looking for the operation that is to blame", error)
            done = await operations.drain_carefully(
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
                self._at.metrics.pushed(one.scope, one.queue_id, one.queue, one.messages)
                self._at.ready.announce(one.queue_id, 1, (one.partition_id,))
        elif one.queue_id is not None and one.outcome not in ("lease_lost", "not_leased"):
            self._at.metrics.settled(
                one.scope, one.queue_id, one.queue, one.group, one.outcome, one.run_ms or []
            )
            self._at.ready.announce(one.queue_id, 1, (one.partition_id,))

    async def _position(self, journal_id: uuid.UUID) -> int:
        return await operations.journal_position(self._at.database, journal_id)

    async def _take_over(self, journal_id: uuid.UUID, position: int, records: Sequence[bytes]) -> None:
        """What the journal accepted goes to the end of its lanes, whatever limits there are on partitions."""
        decoded = [record_decoder.decode(record) for record in records]

        async def take_over() -> None:
            wanted = [await self._operation(record) for record in decoded]
            await operations.take_over(self._at.database, journal_id, position, wanted, DATABASE_DOWN)

        try:
            await take_over()
        except QueueGone:
            self._at.directory.forget_all()
            await take_over()

    async def _operation(self, record: JournalRecord) -> PushOperation:
        name, scope = PartitionName(record.queue, record.partition), Scope(*record.scope)
        known = await self._at.directory.partitions(scope, [name])
        ids = known.get(name) or await log.add_partition(self._at.database, scope, name)
        return PushOperation(record.operation_id, self._later.segment(record, ids))

    async def _forget(self) -> None:
        more = await operations.forget_finished(self._at.database, self._plan.keep_s, FORGET_STEP)
        self._forget_at = time.monotonic() + (0 if more == FORGET_STEP else FORGET_EVERY_S)

    async def _run(self) -> None:
        while True:
            more = False
            try:
                more = await self.round()
            except PenstockError as error:
                logger.debug("nothing was drained: %s", error.detail)
            except Exception:
                # What waits must not be forgotten because one round of it went wrong.
                logger.exception("draining failed and is tried again")
            if not more:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._something.wait(), IDLE_S * random.uniform(0.8, 1.2))
                self._something.clear()
