"""Push: names resolved, payloads sealed, requests merged into one segment per partition."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from penstock.broker.batcher import Batcher
from penstock.broker.messages import NewMessage, PushResult
from penstock.broker.workbench import Workbench
from penstock.durable import log
from penstock.durable.log import PartitionId, PartitionName, Segment
from penstock.errors import DatabaseUnavailable
from penstock.ids import new_id_text
from penstock.model import Scope

RESOLVE_ATTEMPTS = 5


@dataclass(slots=True)
class Part:
    """One request's messages for one partition, and afterwards what became of them."""

    segment: Segment
    gone: bool = False
    duplicates: dict[int, uuid.UUID] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)


class Pushes:
    def __init__(self, workbench: Workbench) -> None:
        self._at = workbench
        self.batcher: Batcher[list[Part], None] = Batcher(self._execute, in_flight=2)

    async def push(self, scope: Scope, messages: Sequence[NewMessage]) -> list[PushResult]:
        """Append messages; one result each, in order. What is answered `queued` is durable.

        The messages of one partition stay together and in order; partitions succeed or fail on their own.
        """
        ids = [new_id_text() for _ in messages]
        results: list[PushResult | None] = [None] * len(messages)
        todo: dict[PartitionName, list[int]] = {}
        for index, message in enumerate(messages):
            todo.setdefault(PartitionName(message.queue, message.partition), []).append(index)
        for _ in range(RESOLVE_ATTEMPTS):
            known = await self._at.directory.partitions(scope, todo)
            for name in [name for name in todo if name not in known]:
                for index in todo.pop(name):
                    results[index] = refusal(messages[index], "the queue has all the partitions it may have")
            if not todo:
                break
            parts = {
                name: Part(self.segment(known[name], messages, ids, indexes))
                for name, indexes in todo.items()
            }
            items = size = 0
            for part in parts.values():
                items += len(part.segment.payloads)
                size += sum(map(len, part.segment.payloads))
            await self.batcher.submit(None, list(parts.values()), items=items, size=size)
            for name, part in parts.items():
                if part.gone:
                    self._at.directory.forget(scope, name.queue)
                    continue
                indexes = todo.pop(name)
                for at, index in enumerate(indexes):
                    results[index] = outcome(part, at, messages[index], ids[index], known[name].partition_id)
                self.count(scope, name, known[name], len(indexes) - len(part.duplicates) - len(part.refused))
            if not todo:
                break
        if todo:
            raise DatabaseUnavailable("the queue is being deleted while it is pushed to; try again")
        return [result for result in results if result is not None]

    def segment(
        self,
        ids: PartitionId,
        messages: Sequence[NewMessage],
        message_ids: list[str],
        indexes: list[int],
    ) -> Segment:
        """The messages at `indexes` as they are stored."""
        payloads = [messages[i].payload for i in indexes]
        if ids.encrypted:
            payloads = [self._at.sealer.seal(payload) for payload in payloads]
        return Segment(
            ids.partition_id,
            [message_ids[i] for i in indexes],
            [messages[i].transaction_id for i in indexes],
            [messages[i].trace_id for i in indexes],
            payloads,
        )

    def count(self, scope: Scope, name: PartitionName, ids: PartitionId, accepted: int) -> None:
        """Tell the metrics and whoever waits that messages came."""
        if accepted:
            self._at.metrics.pushed(scope, ids.queue_id, name.queue, accepted)
            self._at.ready.announce(ids.queue_id, 1, (ids.partition_id,))

    async def _execute(self, key: Hashable, requests: Sequence[list[Part]]) -> list[None]:
        merged: dict[int, Segment] = {}
        placed: list[tuple[Part, int]] = []  # a part, and where it starts in its partition's segment
        for request in requests:
            for part in request:
                segment = part.segment
                whole = merged.get(segment.partition_id)
                if whole is None:
                    merged[segment.partition_id] = Segment(
                        segment.partition_id,
                        list(segment.message_ids),
                        list(segment.transaction_ids),
                        list(segment.trace_ids),
                        list(segment.payloads),
                    )
                    placed.append((part, 0))
                    continue
                placed.append((part, len(whole.message_ids)))
                whole.message_ids += segment.message_ids
                whole.transaction_ids += segment.transaction_ids
                whole.trace_ids += segment.trace_ids
                whole.payloads += segment.payloads
        segments = list(merged.values())
        pushed = await log.push(self._at.database, segments)
        for segment, first_offset in zip(segments, pushed.first_offsets, strict=True):
            if first_offset is None:
                for part, _ in placed:
                    part.gone = part.gone or part.segment.partition_id == segment.partition_id
        if pushed.duplicates or pushed.refused:
            starts: dict[int, int] = {}
            at = 0
            for segment in segments:
                starts[segment.partition_id] = at
                at += len(segment.message_ids)
            for part, start in placed:
                first = starts[part.segment.partition_id] + start
                for index in range(len(part.segment.message_ids)):
                    if first + index in pushed.duplicates:
                        part.duplicates[index] = pushed.duplicates[first + index]
                    elif first + index in pushed.refused:
                        part.refused.add(index)
        return [None] * len(requests)


def outcome(part: Part, at: int, message: NewMessage, message_id: str, partition_id: int) -> PushResult:
    """What became of the message at a place of a part."""
    if at in part.refused:
        return refusal(message, "the queue is full: it has reached its maxSize")
    original = part.duplicates.get(at)
    return PushResult(
        "queued" if original is None else "duplicate",
        message.transaction_id or message_id,
        message_id if original is None else str(original),
        partition_id,
    )


def refusal(message: NewMessage, error: str) -> PushResult:
    return PushResult("failed", message.transaction_id, None, None, error)
