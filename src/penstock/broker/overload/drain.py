"""Execute deferred operations: replay the journal into lanes, and drain the lanes in order.

Every broker process drains, and none waits for another: the first process to come locks a lane for one
transaction. Every round executes acks first, then pushes, so that neither kind waits until the other is done.
A round starts when this process defers an operation, when a waiting lane becomes due, and when maintenance
finds a lane that was left behind by a broker that died. While nothing waits, the drain does not query the
database.
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

from penstock.background import BackgroundTask
from penstock.broker.context import BrokerContext
from penstock.broker.overload.deferred import DATABASE_DOWN, DeferredWrites, JournalRecord, record_decoder
from penstock.config import Settings
from penstock.durable.deferred_operations import (
    ACK,
    PUSH,
    DrainedPartition,
    DrainFailed,
    LanePush,
)
from penstock.durable.log import PartitionName
from penstock.errors import PenstockError, QueueDeleted, UnknownEnvironment
from penstock.model import Scope

logger = logging.getLogger(__name__)

MAX_LANES, MAX_OPERATIONS_PER_LANE = 64, 50
"""Limits of one transaction."""
MAX_LANES_ONE_BY_ONE = 32
POLL_INTERVAL_S = 0.25
"""How often the drain checks whether the journal has records, which costs about 1 µs."""
ERROR_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """Attempts and backoff of a failing operation, and whether it finally blocks its lane (`hold`)."""

    attempts: int = 5
    backoff_ms: int = 200
    hold: bool = False

    @classmethod
    def from_settings(cls, settings: Settings) -> DrainPlan:
        return cls(attempts=settings.operation_attempts, hold=settings.failed_operation == "hold")


class Drain(BackgroundTask):
    """Execute deferred operations. An interrupted round changes nothing."""

    task_name = "drain"

    def __init__(
        self, context: BrokerContext, deferred_writes: DeferredWrites, plan: DrainPlan | None = None
    ) -> None:
        self._context = context
        self._deferred_writes = deferred_writes
        self._plan = plan or DrainPlan()
        self._has_work = asyncio.Event()
        self._has_work.set()  # an earlier process may have left operations
        self._next_round_at = math.inf
        self.drained = 0
        self.failed = 0

    def notify_work(self) -> None:
        """Start a round: there are operations to execute."""
        self._has_work.set()

    async def run_round(self) -> bool:
        """Replay the journal and execute due operations; return True if there may be more."""
        journal = self._deferred_writes.journal
        if journal is not None and journal.has_records:
            replayed = await journal.replay(self._defer_records, self._journal_position)
            if replayed:
                logger.info("Replayed %d pushes from the journal.", replayed)
        has_more = [await self._drain(kind) for kind in (ACK, PUSH)]
        return any(has_more)

    async def _drain(self, kind: str) -> bool:
        operations = self._context.store.operations
        try:
            results = await operations.drain(kind, lanes=MAX_LANES, operations=MAX_OPERATIONS_PER_LANE)
        except DrainFailed as error:
            logger.info("Executing operations one by one to find the failing one: %s", error.detail)
            results = await operations.drain_one_by_one(
                kind,
                lanes=MAX_LANES_ONE_BY_ONE,
                attempts=self._plan.attempts,
                backoff_ms=self._plan.backoff_ms,
                hold=self._plan.hold,
            )
        for result in results:
            self._count(result)
        return any(result.operations for result in results)

    def _count(self, result: DrainedPartition) -> None:
        """Count executed operations in the metrics and wake parked pops."""
        self.drained += result.operations
        if result.outcome == "parked":
            self.failed += 1
            logger.error(
                "An operation of queue %r in environment %s failed all its attempts and is parked. "
                "List it with GET /api/v1/operations?status=failed.",
                *(result.queue, "/".join(result.scope)),
            )
        elif result.outcome == "pushed":
            if result.messages:
                self._context.metrics.count_pushed(
                    result.scope, result.queue_id, result.queue, result.messages
                )
                self._context.wakeups.notify(result.queue_id, 1, (result.partition_id,))
        elif result.queue_id is not None and result.outcome not in ("lease_lost", "not_leased"):
            self._context.metrics.count_acked(
                result.scope, result.queue_id, result.queue, result.group, result.outcome, result.run_ms or []
            )
            self._context.wakeups.notify(result.queue_id, 1, (result.partition_id,))

    async def _journal_position(self, journal_id: uuid.UUID) -> int:
        return await self._context.store.operations.journal_position(journal_id)

    async def _defer_records(self, journal_id: uuid.UUID, position: int, records: Sequence[bytes]) -> None:
        """Append journal records to their lanes, even beyond a queue's maxPartitions: they were accepted."""
        decoded = [record_decoder.decode(record) for record in records]

        async def take_over() -> None:
            operations = [
                operation
                for record in decoded
                if (operation := await self._push_operation(record)) is not None
            ]
            await self._context.store.operations.take_over_journal(
                journal_id, position, operations, DATABASE_DOWN
            )

        try:
            await take_over()
        except QueueDeleted:
            self._context.id_cache.invalidate_all()
            await take_over()

    async def _push_operation(self, record: JournalRecord) -> LanePush | None:
        """Return the operation of a record; None if its environment was deleted, and its messages with it."""
        name, scope = PartitionName(record.queue, record.partition), Scope(*record.scope)
        try:
            partition_ids = await self._context.id_cache.resolve_partitions(scope, [name])
            ids = partition_ids.get(name) or await self._context.id_cache.add_partition(scope, name)
        except UnknownEnvironment:
            logger.error(
                "Environment %s was deleted: %d messages for its queue %r in the journal are dropped.",
                *("/".join(scope), len(record.message_ids), record.queue),
            )
            return None
        return LanePush(record.operation_id, self._deferred_writes.record_to_segment(record, ids))

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                # Not wait_for: it may lose the cancellation that stops this task.
                async with asyncio.timeout(POLL_INTERVAL_S):
                    await self._has_work.wait()
            journal = self._deferred_writes.journal
            journal_has_records = journal is not None and journal.has_records
            is_due = time.monotonic() >= self._next_round_at
            if not (journal_has_records or self._has_work.is_set() or is_due):
                continue
            self._has_work.clear()
            try:
                while await self.run_round():
                    pass
                due_s = await self._context.store.operations.seconds_until_due()
                self._next_round_at = (
                    math.inf if due_s is None else time.monotonic() + due_s + POLL_INTERVAL_S
                )
            except PenstockError as error:
                logger.debug("The drain could not run: %s", error.detail)
                self._next_round_at = time.monotonic() + ERROR_RETRY_S
            except Exception:
                # Waiting operations must not be forgotten because one round failed.
                logger.exception("The drain failed and is retried.")
                self._next_round_at = time.monotonic() + ERROR_RETRY_S
