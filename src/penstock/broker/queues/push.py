"""Push: names resolved, payloads sealed, requests merged into one segment per partition."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.batching import Batcher, Receiver
from penstock.broker.context import BrokerContext
from penstock.broker.messages import DeferralReceipt, NewMessage, PushResult
from penstock.broker.overload.deferred import MAINTAINING_ORDER, SYSTEM_BUSY, DeferredWrites
from penstock.broker.overload.load import Decision, LoadMonitor
from penstock.durable import log
from penstock.durable.log import BEHIND, PartitionId, PartitionName, Segment
from penstock.errors import DatabaseUnavailable, OutcomeUnknown, Overloaded
from penstock.ids import new_id_text
from penstock.model import Scope

RESOLVE_ATTEMPTS = 5
WAITING = "operations wait for this partition, and no more are taken now: try again later"


@dataclass(slots=True)
class Part:
    """One request's messages for one partition, and afterwards what became of them."""

    segment: Segment
    gone: bool = False
    behind: bool = False
    """Operations of its lane come first; nothing was done."""
    duplicates: dict[int, uuid.UUID] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Request:
    """A push on its way: what is left to do, by partition, and what became of the rest."""

    scope: Scope
    messages: Sequence[NewMessage]
    ids: list[str]
    results: list[PushResult | None]
    todo: dict[PartitionName, list[int]]
    sent: bool = False
    """Whether PostgreSQL was asked to do something that has not been answered."""
    overloaded: bool = False

    def refuse(self, name: PartitionName, error: str) -> None:
        for index in self.todo.pop(name):
            self.results[index] = refusal(self.messages[index], error)

    def accept(self, name: PartitionName, operation: DeferralReceipt, partition_id: int | None) -> None:
        for index in self.todo.pop(name):
            message_id = self.ids[index]
            self.results[index] = PushResult(
                "queued",
                self.messages[index].transaction_id or message_id,
                message_id,
                partition_id,
                accepted=operation,
            )


@dataclass(slots=True)
class PendingPush:
    """A push that was sent, and what of it has to join lanes."""

    request: _Request
    known: Mapping[PartitionName, PartitionId]
    parts: Mapping[PartitionName, Part]
    behind: Mapping[PartitionName, Segment] = field(default_factory=dict)


def _request(scope: Scope, messages: Sequence[NewMessage]) -> _Request:
    places: dict[PartitionName, list[int]] = {}
    for index, message in enumerate(messages):
        places.setdefault(PartitionName(message.queue, message.partition), []).append(index)
    return _Request(scope, messages, [new_id_text() for _ in messages], [None] * len(messages), places)


class Pushes:
    def __init__(self, context: BrokerContext, load: LoadMonitor, deferred_writes: DeferredWrites) -> None:
        self._context = context
        self._load = load
        self._deferred_writes = deferred_writes
        self.batcher: Batcher[list[Part], None] = Batcher(
            self._execute, in_flight=2, queue_timeout=load.queue_timeout("push")
        )

    async def push(
        self, scope: Scope, messages: Sequence[NewMessage], decision: Decision = Decision.EXECUTE
    ) -> list[PushResult]:
        """Append messages, or accept them for later; one result each, in order. What is answered `queued` is
        durable.

        The messages of one partition stay together and in order; partitions succeed or fail on their own.
        While PostgreSQL is away they go to the journal. Raises Overloaded if none could be accepted.
        """
        request = _request(scope, messages)
        if not self._deferred_writes.in_journal or not await self._to_journal(request):
            try:
                await self._to_database(request, decision)
            except DatabaseUnavailable as error:
                await self._rescue(request, error)
        return self._results(request)

    def start(
        self, scope: Scope, messages: Sequence[NewMessage], receiver: Receiver[None]
    ) -> PendingPush | None:
        """Send messages on their way that need nothing else first: the receiver is told when something has
        become of them, for `finish`, or what went wrong, for `rescue`.

        None if they do; that is for `push`.
        """
        if self._deferred_writes.in_journal:
            return None
        request = _request(scope, messages)
        known = self._context.id_cache.known_partitions(scope, request.todo)
        if known is None:
            return None
        parts = self._parts(request, known)
        request.sent = True
        items, size = _amount(parts)
        self.batcher.put(None, list(parts.values()), receiver, items=items, size=size)
        return PendingPush(request, known, parts)

    def finish(self, sent: PendingPush) -> list[PushResult] | None:
        """One result each; None if something is left to do, by `go_on`."""
        sent.behind = self._settled(sent.request, sent.known, sent.parts)
        return None if sent.request.todo else self._results(sent.request)

    async def resume(self, sent: PendingPush) -> list[PushResult]:
        """Do the rest: join lanes, and look partitions up again that are gone."""
        request = sent.request
        try:
            if sent.behind:
                await self._accept(request, sent.known, sent.behind, MAINTAINING_ORDER)
            if request.todo:
                await self._to_database(request, Decision.EXECUTE)
        except DatabaseUnavailable as error:
            await self._rescue(request, error)
        return self._results(request)

    async def fall_back_to_journal(self, sent: PendingPush, error: Exception) -> list[PushResult]:
        """Put into the journal what PostgreSQL did not take; raises the error if that is not possible."""
        if not isinstance(error, DatabaseUnavailable):
            raise error
        await self._rescue(sent.request, error)
        return self._results(sent.request)

    async def _rescue(self, request: _Request, error: DatabaseUnavailable) -> None:
        if not await self._may_journal(request, error) or not await self._to_journal(request):
            raise error

    def _results(self, request: _Request) -> list[PushResult]:
        results = [result for result in request.results if result is not None]
        if request.overloaded and all(result.status == "failed" for result in results):
            raise Overloaded(self._load.retry_after_s("push"))
        self._context.metrics.requests.push += 1
        return results

    async def _to_database(self, request: _Request, decision: Decision) -> None:
        scope, todo = request.scope, request.todo
        for _ in range(RESOLVE_ATTEMPTS):
            known = await self._context.id_cache.partitions(scope, todo)
            for name in [name for name in todo if name not in known]:
                request.refuse(name, await self._context.id_cache.why_not(scope, name))
            if not todo:
                return
            parts = self._parts(request, known)
            behind = {name: part.segment for name, part in parts.items()}
            reason = SYSTEM_BUSY
            if decision is Decision.EXECUTE:
                request.sent = True
                items, size = _amount(parts)
                await self.batcher.submit(None, list(parts.values()), items=items, size=size)
                behind = self._settled(request, known, parts)
                reason = MAINTAINING_ORDER
            if behind:
                await self._accept(request, known, behind, reason)
            if not todo:
                return
        raise DatabaseUnavailable("the queue is being deleted while it is pushed to; try again")

    def _parts(
        self, request: _Request, known: Mapping[PartitionName, PartitionId]
    ) -> dict[PartitionName, Part]:
        return {
            name: Part(self.segment(known[name], request.messages, request.ids, indexes))
            for name, indexes in request.todo.items()
        }

    def _settled(
        self,
        request: _Request,
        known: Mapping[PartitionName, PartitionId],
        parts: Mapping[PartitionName, Part],
    ) -> dict[PartitionName, Segment]:
        """Note what was appended; what has to join lanes is returned. Partitions that are gone are left."""
        request.sent = False
        behind: dict[PartitionName, Segment] = {}
        for name, part in parts.items():
            if part.gone:
                self._context.id_cache.invalidate_queue(request.scope, name.queue)
                continue
            if part.behind:
                behind[name] = part.segment
                continue
            indexes = request.todo.pop(name)
            ids = known[name]
            for at, index in enumerate(indexes):
                message, message_id = request.messages[index], request.ids[index]
                request.results[index] = outcome(part, at, message, message_id, ids.partition_id)
            self.count(request.scope, name, ids, len(indexes) - len(part.duplicates) - len(part.refused))
        return behind

    async def _accept(
        self,
        request: _Request,
        known: Mapping[PartitionName, PartitionId],
        segments: Mapping[PartitionName, Segment],
        reason: str,
    ) -> None:
        """Put segments at the end of their lanes, if those may get longer."""
        if reason == MAINTAINING_ORDER and self._load.enabled and not self._load.may_defer("push"):
            request.overloaded = True
            for name in segments:
                request.refuse(name, WAITING)
            return
        request.sent = True
        accepted = await self._deferred_writes.accept_pushes(segments, reason)
        request.sent = False
        for name, operation in zip(segments, accepted, strict=True):
            if operation is None:
                self._context.id_cache.invalidate_queue(request.scope, name.queue)
            else:
                request.accept(name, operation, known[name].partition_id)

    async def _may_journal(self, request: _Request, error: DatabaseUnavailable) -> bool:
        """Whether what is left to do may go to the journal: there is one, PostgreSQL is away, and no message
        can come twice by that. Of what was under way when PostgreSQL went, only one with a transaction id can
        be told from its repetition."""
        if self._deferred_writes.journal is None or not await self._context.database.outage.confirmed():
            return False
        if not (request.sent and isinstance(error, OutcomeUnknown)):
            return True
        return all(
            request.messages[index].transaction_id is not None
            for indexes in request.todo.values()
            for index in indexes
        )

    async def _to_journal(self, request: _Request) -> bool:
        """Whether what is left to do is in the journal now."""
        accepted = await self._deferred_writes.journal_pushes(
            request.scope, request.messages, request.ids, request.todo
        )
        if accepted is None:
            return False
        for name, operation in accepted.items():
            request.accept(name, operation, None)
        return True

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
            payloads = [self._context.cipher.encrypt(payload) for payload in payloads]
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
            self._context.metrics.pushed(scope, ids.queue_id, name.queue, accepted)
            self._context.wakeups.notify(ids.queue_id, 1, (ids.partition_id,))

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
        pushed = await log.push(self._context.database, segments)
        for segment, first_offset in zip(segments, pushed.first_offsets, strict=True):
            if first_offset is None or first_offset == BEHIND:
                for part, _ in placed:
                    if part.segment.partition_id == segment.partition_id:
                        part.gone, part.behind = first_offset is None, first_offset == BEHIND
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


def _amount(parts: Mapping[PartitionName, Part]) -> tuple[int, int]:
    """How many messages, and how many bytes of them."""
    payloads = [payload for part in parts.values() for payload in part.segment.payloads]
    return len(payloads), sum(map(len, payloads))


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
