"""Accepting now what is carried out later: in PostgreSQL, or in the journal while PostgreSQL is away."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from penstock.batching import Batcher
from penstock.broker.context import BrokerContext
from penstock.broker.journal.push_journal import Journal
from penstock.broker.messages import DeferralReceipt, NewMessage
from penstock.broker.overload.load import LoadMonitor
from penstock.durable import deferred_operations
from penstock.durable.deferred_operations import ACK, PUSH, AckOperation, PushOperation
from penstock.durable.log import Ack, PartitionId, PartitionName, Segment
from penstock.ids import new_id
from penstock.model import Scope

MAINTAINING_ORDER, SYSTEM_BUSY, DATABASE_DOWN = "maintaining_order", "system_busy", "database_down"

HOLD_MS = 15 * 60_000
"""For how long the lease of an ack that waits is held: longer than any lane takes."""


class JournalRecord(msgspec.Struct, array_like=True):
    """A push of one partition in the journal. Payloads are sealed wherever there is a key."""

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
class DeferredAcks:
    """What became of the acks of one operation; `refused` are those, from 0, whose lease is not in force."""

    receipt: DeferralReceipt | None
    rejected: set[int]


class DeferredWrites:
    """`soon` is called whenever something was accepted."""

    def __init__(self, context: BrokerContext, load: LoadMonitor, journal: Journal | None) -> None:
        self._context = context
        self._load = load
        self.journal = journal
        self.notify_work: Callable[[], None] = lambda: None
        self.pushes: Batcher[list[PushOperation], list[int | None]] = Batcher(
            self._execute_pushes, queue_timeout=load.queue_timeout(PUSH)
        )
        self.acks: Batcher[list[AckOperation], list[DeferredAcks]] = Batcher(self._execute_acks)

    @property
    def uses_journal(self) -> bool:
        """Whether pushes have to go to the journal: PostgreSQL is away, or something waits there already."""
        if self.journal is None:
            return False
        return self._context.database.outage.is_active or self.journal.has_records

    async def defer_pushes(
        self, segments: Mapping[PartitionName, Segment], reason: str
    ) -> list[DeferralReceipt | None]:
        """One operation per partition, at the end of its lane; None where the partition is gone."""
        wanted = [PushOperation(new_id(), segment) for segment in segments.values()]
        items = sum(len(segment.payloads) for segment in segments.values())
        size = sum(sum(map(len, segment.payloads)) for segment in segments.values())
        places = await self.pushes.submit(reason, wanted, items=items, size=size)
        self._load.accepted(PUSH, len(wanted))
        self.notify_work()
        wait_s = self._load.estimated_wait_s(PUSH)
        return [
            None if place is None else DeferralReceipt(str(operation.id), place, reason, wait_s)
            for operation, place in zip(wanted, places, strict=True)
        ]

    async def defer_acks(self, acks: Mapping[int, list[Ack]]) -> dict[int, DeferredAcks]:
        """One operation per partition, with what became of it."""
        wanted = [AckOperation(new_id(), partition_id, given) for partition_id, given in acks.items()]
        count = sum(map(len, acks.values()))
        results = await self.acks.submit(SYSTEM_BUSY, wanted, items=count)
        self._load.accepted(ACK, sum(result.receipt is not None for result in results))
        self.notify_work()
        return dict(zip(acks, results, strict=True))

    async def journal_pushes(
        self,
        scope: Scope,
        messages: Sequence[NewMessage],
        message_ids: Sequence[str],
        todo: Mapping[PartitionName, list[int]],
    ) -> dict[PartitionName, DeferralReceipt] | None:
        """One record per partition, on disk when this returns. None if there is no need any more: PostgreSQL
        is there, and has all that was in the journal. Raises JournalFull."""
        assert self.journal is not None
        ids = {name: new_id() for name in todo}
        records = [
            _encode(
                JournalRecord(
                    ids[name],
                    (scope.organization, scope.project, scope.environment),
                    name.queue,
                    name.partition,
                    [message_ids[i] for i in indexes],
                    [messages[i].transaction_id for i in indexes],
                    [messages[i].trace_id for i in indexes],
                    [self._sealed(messages[i].payload) for i in indexes],
                )
            )
            for name, indexes in todo.items()
        ]
        if not await self.journal.append(records, behind=not self._context.database.outage.is_active):
            return None
        position = self.journal.depth().records
        return {name: DeferralReceipt(str(ids[name]), position, DATABASE_DOWN, None) for name in todo}

    def _sealed(self, payload: bytes) -> bytes:
        cipher = self._context.cipher
        return cipher.encrypt(payload) if cipher.can_encrypt else payload

    def segment(self, record: JournalRecord, ids: PartitionId) -> Segment:
        """What a journal's record says, as it is stored."""
        cipher = self._context.cipher
        payloads = [cipher.decrypt(payload) for payload in record.payloads]
        if ids.encrypted:
            payloads = [cipher.encrypt(payload) for payload in payloads]
        return Segment(
            ids.partition_id, record.message_ids, record.transaction_ids, record.trace_ids, payloads
        )

    async def _execute_pushes(
        self, key: Hashable, requests: Sequence[list[PushOperation]]
    ) -> list[list[int | None]]:
        wanted = [operation for request in requests for operation in request]
        places = iter(await deferred_operations.spill_pushes(self._context.database, wanted, str(key)))
        return [[next(places) for _ in request] for request in requests]

    async def _execute_acks(
        self, key: Hashable, requests: Sequence[list[AckOperation]]
    ) -> list[list[DeferredAcks]]:
        wanted = [operation for request in requests for operation in request]
        places, refused = await deferred_operations.spill_acks(self._context.database, wanted, str(key), HOLD_MS)
        wait_s = self._load.estimated_wait_s(ACK)
        results: list[DeferredAcks] = []
        first = 0
        for operation, place in zip(wanted, places, strict=True):
            own = {item - first for item in refused if first <= item < first + len(operation.acks)}
            first += len(operation.acks)
            accepted = None if place is None else DeferralReceipt(str(operation.id), place, str(key), wait_s)
            results.append(DeferredAcks(accepted, own))
        split = iter(results)
        return [[next(split) for _ in request] for request in requests]
