"""Defer pushes and acks: store them now as operations in PostgreSQL, or in the journal during an outage.

`Drain` executes them later. `OperationActions` lets operators read, retry and delete them.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from penstock.batching import Batcher, split_results
from penstock.broker.context import BrokerContext
from penstock.broker.journal.push_journal import Journal
from penstock.broker.messages import NewMessage
from penstock.broker.overload.load import LoadMonitor
from penstock.durable.deferred_operations import ACK, PUSH, LaneAcks, LanePush, OperationRecord
from penstock.durable.log import Ack, PartitionId, PartitionName, Segment
from penstock.errors import DatabaseUnavailable, Overloaded, UnknownOperation, WrongState
from penstock.ids import new_id
from penstock.model import DeferralReceipt, Scope

Result = TypeVar("Result")

MAINTAINING_ORDER, SYSTEM_BUSY, DATABASE_DOWN = "maintaining_order", "system_busy", "database_down"
"""Reasons for a deferral."""

LANE_TIMEOUT_S, LANE_POLL_S = 5.0, 0.05
"""How long a request waits for the lanes of its partitions to empty, and how often it retries."""

ACK_LEASE_MS = 15 * 60_000
"""How long the lease of a deferred ack is kept in force: longer than any lane takes to drain."""


class JournalRecord(msgspec.Struct, array_like=True):
    """A push to one partition, as the journal stores it. Payloads are encrypted if there is a key."""

    operation_id: uuid.UUID
    scope: tuple[str, str, str]
    queue: str
    partition: str
    message_ids: list[str]
    transaction_ids: list[str | None]
    trace_ids: list[uuid.UUID | None]
    payloads: list[bytes]


record_decoder = msgspec.msgpack.Decoder(JournalRecord)
_encode = msgspec.msgpack.Encoder().encode


@dataclass(slots=True)
class DeferredSegment:
    """The result of deferring one segment. Its items count from 0."""

    receipt: DeferralReceipt | None
    """None: no item was accepted."""
    duplicates: dict[int, uuid.UUID]
    """The messages that items repeat."""
    refused: set[int]
    """The items whose queue is full."""


@dataclass(slots=True)
class DeferredAcks:
    """The result of deferring one operation. `rejected` holds the indexes of acks whose lease is lost."""

    receipt: DeferralReceipt | None
    rejected: set[int]


class DeferredWrites:
    """Accept pushes and acks for later execution. `notify_work` is called after every deferral."""

    def __init__(self, context: BrokerContext, load: LoadMonitor, journal: Journal | None) -> None:
        self._context = context
        self._load = load
        self.journal = journal
        self.lane_timeout_s = LANE_TIMEOUT_S
        self.notify_work: Callable[[], None] = lambda: None
        self.pushes: Batcher[list[LanePush], list[DeferredSegment | None]] = Batcher(
            self._execute_pushes, queue_timeout=load.queue_timeout(PUSH)
        )
        self.acks: Batcher[list[LaneAcks], list[DeferredAcks]] = Batcher(self._execute_acks)

    @property
    def uses_journal(self) -> bool:
        """Whether pushes must go to the journal: PostgreSQL is unavailable, or the journal is not empty."""
        if self.journal is None:
            return False
        return self._context.database.outage.is_active or self.journal.has_records

    async def defer_pushes(self, segments: Sequence[Segment], reason: str) -> list[DeferredSegment | None]:
        """Append one operation per segment to its lane; None where the partition was deleted."""
        operations = [LanePush(new_id(), segment) for segment in segments]
        items = sum(len(segment.payloads) for segment in segments)
        size_bytes = sum(sum(map(len, segment.payloads)) for segment in segments)
        results = await self.pushes.submit(reason, operations, items=items, size=size_bytes)
        self._load.add_deferred(
            PUSH, sum(result is not None and result.receipt is not None for result in results)
        )
        self.notify_work()
        return results

    async def defer_acks(self, acks_by_partition: Mapping[int, list[Ack]]) -> dict[int, DeferredAcks]:
        """Append one operation per partition to its lane; return the results by partition id."""
        operations = [
            LaneAcks(new_id(), partition_id, acks) for partition_id, acks in acks_by_partition.items()
        ]
        items = sum(map(len, acks_by_partition.values()))
        results = await self.acks.submit(SYSTEM_BUSY, operations, items=items)
        self._load.add_deferred(ACK, sum(result.receipt is not None for result in results))
        self.notify_work()
        return dict(zip(acks_by_partition, results, strict=True))

    async def journal_pushes(
        self,
        scope: Scope,
        messages: Sequence[NewMessage],
        message_ids: Sequence[str],
        indexes_by_partition: Mapping[PartitionName, list[int]],
    ) -> dict[PartitionName, DeferralReceipt] | None:
        """Write one journal record per partition. The records are on disk when this returns.

        Returns None if the journal is not needed any more: PostgreSQL is back and has taken over all records.
        Raises JournalFull.
        """
        assert self.journal is not None
        operation_ids = {name: new_id() for name in indexes_by_partition}
        records = [
            _encode(
                JournalRecord(
                    operation_ids[name],
                    (scope.organization, scope.project, scope.environment),
                    name.queue,
                    name.partition,
                    [message_ids[i] for i in indexes],
                    [messages[i].transaction_id for i in indexes],
                    [messages[i].trace_id for i in indexes],
                    [self._encrypt(messages[i].payload) for i in indexes],
                )
            )
            for name, indexes in indexes_by_partition.items()
        ]
        outage = self._context.database.outage
        if not await self.journal.append(records, unless_empty=not outage.is_active):
            return None
        position = self.journal.depth().records
        return {
            name: DeferralReceipt(str(operation_id), position, DATABASE_DOWN, None)
            for name, operation_id in operation_ids.items()
        }

    async def execute_after_lanes(self, attempt: Callable[[], Awaitable[Result | None]]) -> Result:
        """Repeat `attempt` until it returns a result; it returns None while operations wait in a lane.

        For requests that are executed at once and never deferred. Raises Overloaded after `lane_timeout_s`.
        """
        deadline = time.monotonic() + self.lane_timeout_s
        while (result := await attempt()) is None:
            if time.monotonic() > deadline:
                raise Overloaded(self._load.lanes_retry_after_s())
            self.notify_work()
            await asyncio.sleep(LANE_POLL_S)
        return result

    def _encrypt(self, payload: bytes) -> bytes:
        cipher = self._context.cipher
        return cipher.encrypt(payload) if cipher.can_encrypt else payload

    def record_to_segment(self, record: JournalRecord, ids: PartitionId) -> Segment:
        """Build the segment of a journal record, encrypted if its queue is."""
        cipher = self._context.cipher
        payloads = [cipher.decrypt(payload) for payload in record.payloads]
        if ids.encrypted:
            payloads = [cipher.encrypt(payload) for payload in payloads]
        return Segment(
            ids.partition_id, record.message_ids, record.transaction_ids, record.trace_ids, payloads
        )

    async def _execute_pushes(
        self, reason: Hashable, requests: Sequence[list[LanePush]]
    ) -> list[list[DeferredSegment | None]]:
        operations = [operation for request in requests for operation in request]
        deferral = await self._context.store.operations.defer_pushes(operations, str(reason))
        wait_s = self._load.estimated_wait_s(PUSH)
        results: list[DeferredSegment | None] = []
        first = 0
        for operation, place in zip(operations, deferral.places, strict=True):
            end = first + len(operation.segment.message_ids)
            receipt = DeferralReceipt(str(operation.id), place, str(reason), wait_s) if place else None
            items = range(first, end)
            duplicates = {
                item - first: deferral.duplicates[item] for item in items if item in deferral.duplicates
            }
            refused = {item - first for item in items if item in deferral.refused}
            results.append(None if place is None else DeferredSegment(receipt, duplicates, refused))
            first = end
        return split_results(requests, results)

    async def _execute_acks(
        self, reason: Hashable, requests: Sequence[list[LaneAcks]]
    ) -> list[list[DeferredAcks]]:
        operations = [operation for request in requests for operation in request]
        positions, rejected_items = await self._context.store.operations.defer_acks(
            operations, str(reason), ACK_LEASE_MS
        )
        wait_s = self._load.estimated_wait_s(ACK)
        results: list[DeferredAcks] = []
        first = 0
        for operation, position in zip(operations, positions, strict=True):
            end = first + len(operation.acks)
            rejected = {item - first for item in rejected_items if first <= item < end}
            first = end
            receipt = None
            if position is not None:
                receipt = DeferralReceipt(str(operation.id), position, str(reason), wait_s)
            results.append(DeferredAcks(receipt, rejected))
        return split_results(requests, results)


class OperationActions:
    """Read, retry and delete deferred operations on behalf of an operator."""

    def __init__(self, context: BrokerContext, deferred_writes: DeferredWrites) -> None:
        self._context = context
        self._deferred_writes = deferred_writes

    async def get(self, scope: Scope, operation_id: uuid.UUID) -> OperationRecord:
        """Return an operation with its items and its result.

        Raises UnknownOperation, or DatabaseUnavailable if the operation may still be in the journal.
        """
        journal = self._deferred_writes.journal
        journal_has_records = journal is not None and journal.has_records
        operation = await self._context.store.operations.get(scope, operation_id)
        if operation is None:
            if journal_has_records:
                raise DatabaseUnavailable(
                    f"Operation {operation_id} may still be in the journal, whose replay is in progress. "
                    "Try again."
                )
            raise _unknown_operation(operation_id)
        return operation

    async def retry(self, scope: Scope, operation_id: uuid.UUID) -> None:
        """Execute a failed operation again, before all others of its lane."""
        await self.get(scope, operation_id)
        outcome = await self._context.store.operations.retry(operation_id)
        if outcome == "unknown":
            raise _unknown_operation(operation_id)
        if outcome == "not_failed":
            raise WrongState(
                f"Operation {operation_id} has not failed. Only failed operations can be retried."
            )
        self._deferred_writes.notify_work()

    async def delete(self, scope: Scope, operation_id: uuid.UUID) -> str:
        """Delete an operation, executed or not, and return the status it had."""
        await self.get(scope, operation_id)
        status = await self._context.store.operations.delete(operation_id)
        if status == "unknown":
            raise _unknown_operation(operation_id)
        return status


def _unknown_operation(operation_id: uuid.UUID) -> UnknownOperation:
    return UnknownOperation(
        f"Operation {operation_id} does not exist. Completed operations are deleted after a while.",
        operationId=operation_id,
    )
