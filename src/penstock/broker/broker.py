"""Push, pop and ack for one broker process: names resolved, requests batched, results counted."""

from __future__ import annotations

import json
import uuid
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.broker.batcher import Batcher
from penstock.broker.directory import Directory
from penstock.broker.messages import (
    Lease,
    Message,
    NewMessage,
    Popped,
    PushResult,
    Settlement,
    SettlementResult,
)
from penstock.broker.metrics import QueueMetrics
from penstock.clock import Clock, system_clock
from penstock.durable import log
from penstock.durable.faults import GroupGone
from penstock.durable.log import Ack, Acked, PartitionName, PopRequest, Segment
from penstock.durable.pool import Database
from penstock.ids import new_id
from penstock.model import Scope

RESOLVE_ATTEMPTS = 5


@dataclass(slots=True)
class _Push:
    """One request's messages for one partition, and afterwards what became of them."""

    segment: Segment
    gone: bool = False
    duplicates: dict[int, uuid.UUID] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _PopKey:
    group_id: int
    partition_id: int | None
    lease_ms: int
    auto_ack: bool


class Broker:
    """The operations on durable queues. One per process and event loop."""

    def __init__(
        self, database: Database, metrics: QueueMetrics, *, lease_ms: int, clock: Clock = system_clock
    ) -> None:
        self._database = database
        self._metrics = metrics
        self._lease_ms = lease_ms
        self._clock = clock
        self.directory = Directory(database)
        self.pushes: Batcher[list[_Push], None] = Batcher(self._execute_pushes, in_flight=2)
        self.pops: Batcher[PopRequest, list[Any]] = Batcher(self._execute_pops, max_items=200)
        self.acks: Batcher[list[Ack], list[Acked]] = Batcher(self._execute_acks, in_flight=2)

    async def close(self) -> None:
        """Finish what is in flight."""
        for batcher in (self.pushes, self.pops, self.acks):
            await batcher.drain()

    async def push(self, scope: Scope, messages: Sequence[NewMessage]) -> list[PushResult]:
        """Append messages; one result each, in order. Atomic per partition within the request."""
        ids = [new_id() for _ in messages]
        results: list[PushResult | None] = [None] * len(messages)
        todo: dict[PartitionName, list[int]] = {}
        for index, message in enumerate(messages):
            todo.setdefault(PartitionName(message.queue, message.partition), []).append(index)
        for _ in range(RESOLVE_ATTEMPTS):
            known = await self.directory.partitions(scope, todo)
            parts = {
                name: _Push(_segment(known[name].partition_id, messages, ids, indexes))
                for name, indexes in todo.items()
            }
            size = sum(len(p) for part in parts.values() for p in part.segment.payloads)
            items = sum(len(indexes) for indexes in todo.values())
            await self.pushes.submit(None, list(parts.values()), items=items, size=size)
            for name, part in parts.items():
                if part.gone:
                    self.directory.forget(scope, name.queue)
                    continue
                indexes = todo.pop(name)
                for at, index in enumerate(indexes):
                    original = part.duplicates.get(at)
                    results[index] = PushResult(
                        original or ids[index],
                        messages[index].transaction_id or str(ids[index]),
                        known[name].partition_id,
                        original is not None,
                    )
                accepted = len(indexes) - len(part.duplicates)
                self._metrics.pushed(scope, known[name].queue_id, name.queue, accepted)
            if not todo:
                break
        assert not todo, "a queue is being deleted as fast as it is made"
        return [result for result in results if result is not None]

    async def pop(
        self,
        scope: Scope,
        queue: str,
        group: str,
        *,
        batch: int = 1,
        partition: str | None = None,
        partitions: int = 1,
        auto_ack: bool = False,
    ) -> Popped:
        """Lease up to `batch` messages, or take them for good with `auto_ack`. Empty if there are none."""
        lease_id = new_id()
        for _ in range(RESOLVE_ATTEMPTS):
            ids = await self.directory.group(scope, queue, group)
            partition_id = None
            if partition is not None:
                name = PartitionName(queue, partition)
                partition_id = (await self.directory.partitions(scope, [name]))[name].partition_id
            key = _PopKey(ids.group_id, partition_id, ids.lease_ms or self._lease_ms, auto_ack)
            width = 1 if partition is not None else partitions
            try:
                rows = await self.pops.submit(key, PopRequest(lease_id, batch, width))
                break
            except GroupGone:
                self.directory.forget(scope, queue)
        else:
            rows = []
        messages = _messages(rows)
        if messages:
            now = self._clock()
            waits = [max(0, int((now - message.created_at.timestamp()) * 1000)) for message in messages]
            self._metrics.popped(scope, ids.queue_id, queue, group, waits)
            if auto_ack:
                for _message in messages:
                    self._metrics.settled(scope, ids.queue_id, queue, group, "completed", 0)
        lease = "" if auto_ack or not messages else str(Lease(ids.group_id, lease_id))
        return Popped(lease, messages, len({message.partition_id for message in messages}))

    async def ack(self, scope: Scope, settlements: Sequence[Settlement]) -> list[SettlementResult]:
        """Settle messages; one result each, in order. One that is refused changes nothing."""
        acks = [
            Ack(s.partition_id, s.lease.group_id, s.lease.lease_id, s.transaction_id, s.status, s.error)
            for s in settlements
        ]
        results = await self.acks.submit(None, acks, items=len(acks))
        for result in results:
            if result.run_ms is not None and result.outcome != "not_leased" and result.queue_id is not None:
                assert result.queue is not None
                assert result.group is not None
                self._metrics.settled(
                    scope, result.queue_id, result.queue, result.group, result.outcome, result.run_ms
                )
        return [SettlementResult(r.outcome, r.queue, r.partition, r.lease_released) for r in results]

    async def _execute_pushes(self, key: Hashable, requests: Sequence[list[_Push]]) -> list[None]:
        merged: dict[int, Segment] = {}
        placed: list[tuple[_Push, int, int]] = []  # part, its partition, where it starts in the segment
        for request in requests:
            for part in request:
                segment = part.segment
                whole = merged.get(segment.partition_id)
                if whole is None:
                    whole = merged[segment.partition_id] = Segment(segment.partition_id, [], [], [], [])
                placed.append((part, segment.partition_id, len(whole.message_ids)))
                whole.message_ids += segment.message_ids
                whole.transaction_ids += segment.transaction_ids
                whole.trace_ids += segment.trace_ids
                whole.payloads += segment.payloads
        segments = list(merged.values())
        pushed = await log.push(self._database, segments)
        gone = {
            s.partition_id for s, offset in zip(segments, pushed.first_offsets, strict=True) if offset is None
        }
        starts: dict[int, int] = {}
        at = 0
        for whole in segments:
            starts[whole.partition_id] = at
            at += len(whole.message_ids)
        for part, partition_id, start in placed:
            part.gone = partition_id in gone
            if pushed.duplicates:
                first = starts[partition_id] + start
                for index in range(len(part.segment.message_ids)):
                    if original := pushed.duplicates.get(first + index):
                        part.duplicates[index] = original
        return [None] * len(requests)

    async def _execute_pops(self, key: Hashable, requests: Sequence[PopRequest]) -> list[list[Any]]:
        assert isinstance(key, _PopKey)
        rows = await log.pop(
            self._database,
            key.group_id,
            requests,
            partition_id=key.partition_id,
            lease_ms=key.lease_ms,
            auto_ack=key.auto_ack,
        )
        per_request: list[list[Any]] = [[] for _ in requests]
        for row in rows:
            per_request[row["request"] - 1].append(row)
        return per_request

    async def _execute_acks(self, key: Hashable, requests: Sequence[list[Ack]]) -> list[list[Acked]]:
        results = await log.ack(self._database, [ack for request in requests for ack in request])
        split: list[list[Acked]] = []
        at = 0
        for request in requests:
            split.append(results[at : at + len(request)])
            at += len(request)
        return split


def _segment(
    partition_id: int, messages: Sequence[NewMessage], ids: list[uuid.UUID], indexes: list[int]
) -> Segment:
    return Segment(
        partition_id,
        [ids[i] for i in indexes],
        [messages[i].transaction_id for i in indexes],
        [messages[i].trace_id for i in indexes],
        [messages[i].payload for i in indexes],
    )


def _messages(rows: list[Any]) -> list[Message]:
    """The rows of one pop as messages, without those that were finished earlier."""
    messages: list[Message] = []
    for row in rows:
        attempts = json.loads(row["attempts"]) if row["attempts"] != "{}" else {}
        done = row["done"]
        transaction_ids = row["transaction_ids"]
        trace_ids = row["trace_ids"]
        for at, message_id in enumerate(row["message_ids"]):
            offset = row["first_offset"] + at
            if done and any(r.lower <= offset < r.upper for r in done):
                continue
            chosen = transaction_ids[at] if transaction_ids else None
            messages.append(
                Message(
                    message_id,
                    chosen or str(message_id),
                    trace_ids[at] if trace_ids else None,
                    row["payloads"][at],
                    row["created_at"],
                    row["partition_id"],
                    row["partition"],
                    attempts.get(str(offset), 0),
                )
            )
    return messages
