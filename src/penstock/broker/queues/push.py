"""Push messages: resolve names, encrypt payloads, and merge requests into one segment per partition."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.batching import Batcher, Receiver
from penstock.broker.context import BrokerContext
from penstock.broker.messages import DeferralReceipt, NewMessage, PushResult
from penstock.broker.overload.deferred import MAINTAINING_ORDER, SYSTEM_BUSY, DeferredWrites
from penstock.broker.overload.load import Decision, LoadMonitor
from penstock.durable import log
from penstock.durable.log import BLOCKED_BY_LANE, PartitionId, PartitionName, Segment
from penstock.errors import DatabaseUnavailable, OutcomeUnknown, Overloaded
from penstock.ids import new_id_text
from penstock.model import Scope

RESOLVE_ATTEMPTS = 5


@dataclass(slots=True)
class PartitionPush:
    """The messages of one request for one partition, and after execution their outcome."""

    segment: Segment
    partition_deleted: bool = False
    blocked_by_lane: bool = False
    """Deferred operations of the partition come first; nothing was appended."""
    duplicates: dict[int, uuid.UUID] = field(default_factory=dict)
    rejected: set[int] = field(default_factory=set)
    """Messages that exceed the queue's maxSize."""


@dataclass(slots=True)
class _Request:
    """A push in progress: the messages still to store, by partition, and the results of the others."""

    scope: Scope
    messages: Sequence[NewMessage]
    message_ids: list[str]
    results: list[PushResult | None]
    pending: dict[PartitionName, list[int]]
    awaits_database: bool = False
    """PostgreSQL is executing a write of this request and has not answered yet."""
    overloaded: bool = False

    def fail(self, name: PartitionName, error: str) -> None:
        for index in self.pending.pop(name):
            self.results[index] = failed_push(self.messages[index], error)

    def defer(self, name: PartitionName, receipt: DeferralReceipt, partition_id: int | None) -> None:
        for index in self.pending.pop(name):
            message_id = self.message_ids[index]
            self.results[index] = PushResult(
                "queued",
                self.messages[index].transaction_id or message_id,
                message_id,
                partition_id,
                deferral=receipt,
            )


@dataclass(slots=True)
class PendingPush:
    """A push between `start` and its results."""

    request: _Request
    decision: Decision
    is_queued: bool = False
    """The push waits for its batch. If not, `resume` executes it."""
    partition_ids: Mapping[PartitionName, PartitionId] = field(default_factory=dict)
    partition_pushes: Mapping[PartitionName, PartitionPush] = field(default_factory=dict)
    blocked_segments: Mapping[PartitionName, Segment] = field(default_factory=dict)
    """Segments that have to join their lanes."""


def _new_request(scope: Scope, messages: Sequence[NewMessage]) -> _Request:
    pending: dict[PartitionName, list[int]] = {}
    for index, message in enumerate(messages):
        pending.setdefault(PartitionName(message.queue, message.partition), []).append(index)
    return _Request(scope, messages, [new_id_text() for _ in messages], [None] * len(messages), pending)


class Pushes:
    """Append messages to the log, defer them, or write them to the journal."""

    def __init__(self, context: BrokerContext, load: LoadMonitor, deferred_writes: DeferredWrites) -> None:
        self._context = context
        self._load = load
        self._deferred_writes = deferred_writes
        self.batcher: Batcher[list[PartitionPush], None] = Batcher(
            self._execute, max_in_flight=2, queue_timeout=load.queue_timeout("push")
        )

    async def push(
        self, scope: Scope, messages: Sequence[NewMessage], decision: Decision = Decision.EXECUTE
    ) -> list[PushResult]:
        """Append or defer messages; one result each, in order. A message with status `queued` is durable.

        The messages of one partition stay together and in order. Each partition succeeds or fails on its own.
        While PostgreSQL is unavailable, messages go to the journal. Raises Overloaded if all of them failed
        because the broker is overloaded.
        """
        batch_done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        push = self.start(scope, messages, batch_done, decision)
        if not push.is_queued:
            return await self.resume(push)
        try:
            await batch_done
        except DatabaseUnavailable as error:
            return await self.resume(push, error)
        results = self.finish(push)
        return await self.resume(push) if results is None else results

    def start(
        self,
        scope: Scope,
        messages: Sequence[NewMessage],
        receiver: Receiver[None],
        decision: Decision = Decision.EXECUTE,
    ) -> PendingPush:
        """Queue messages for their batch, if all their partitions are cached and nothing has to be deferred.

        The receiver learns of success, for `finish`, or of an error, for `resume`. A push that is not queued
        (`is_queued`) is executed by `resume` alone.
        """
        push = PendingPush(_new_request(scope, messages), decision)
        if decision is Decision.EXECUTE and not self._deferred_writes.uses_journal:
            partition_ids = self._context.id_cache.cached_partitions(scope, push.request.pending)
            if partition_ids is not None:
                self._queue(push, partition_ids, receiver)
        return push

    def _queue(
        self,
        push: PendingPush,
        partition_ids: Mapping[PartitionName, PartitionId],
        receiver: Receiver[None],
    ) -> None:
        push.partition_ids = partition_ids
        push.partition_pushes = self._partition_pushes(push.request, partition_ids)
        push.is_queued = push.request.awaits_database = True
        items, size_bytes = _size(push.partition_pushes)
        self.batcher.put(None, list(push.partition_pushes.values()), receiver, items=items, size=size_bytes)

    def finish(self, push: PendingPush) -> list[PushResult] | None:
        """Return one result per message; None if some are still pending, which `resume` stores."""
        push.blocked_segments = self._apply_outcomes(push.request, push.partition_ids, push.partition_pushes)
        return None if push.request.pending else self._finish(push.request)

    async def resume(self, push: PendingPush, error: Exception | None = None) -> list[PushResult]:
        """Store the pending messages: defer, resolve partitions again, or write them to the journal.

        `error` is the failure of the batch; it is raised again if the journal cannot take the messages.
        """
        request = push.request
        try:
            if error is not None:
                raise error
            await self._store_pending(push)
        except DatabaseUnavailable as unavailable:
            await self._fall_back_to_journal(request, unavailable)
        return self._finish(request)

    async def _store_pending(self, push: PendingPush) -> None:
        request = push.request
        if (
            not push.is_queued
            and self._deferred_writes.uses_journal
            and await self._write_to_journal(request)
        ):
            return
        if push.blocked_segments:
            await self._defer(request, push.partition_ids, push.blocked_segments, MAINTAINING_ORDER)
        if request.pending:
            await self._write_to_database(push)

    async def _fall_back_to_journal(self, request: _Request, error: DatabaseUnavailable) -> None:
        if not await self._may_journal(request, error) or not await self._write_to_journal(request):
            raise error

    def _finish(self, request: _Request) -> list[PushResult]:
        results = [result for result in request.results if result is not None]
        if request.overloaded and all(result.status == "failed" for result in results):
            raise Overloaded(self._load.retry_after_s("push"))
        self._context.metrics.requests.push += 1
        return results

    async def _write_to_database(self, push: PendingPush) -> None:
        request = push.request
        scope, pending = request.scope, request.pending
        for _ in range(RESOLVE_ATTEMPTS):
            partition_ids = await self._context.id_cache.resolve_partitions(scope, pending)
            for name in [name for name in pending if name not in partition_ids]:
                request.fail(name, await self._context.id_cache.refusal_reason(scope, name))
            if not pending:
                return
            if push.decision is Decision.EXECUTE:
                batch_done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._queue(push, partition_ids, batch_done)
                await batch_done
                to_defer = self._apply_outcomes(request, partition_ids, push.partition_pushes)
                reason = MAINTAINING_ORDER
            else:
                pushes = self._partition_pushes(request, partition_ids)
                to_defer = {name: partition_push.segment for name, partition_push in pushes.items()}
                reason = SYSTEM_BUSY
            if to_defer:
                await self._defer(request, partition_ids, to_defer, reason)
            if not pending:
                return
        raise DatabaseUnavailable("The queue is being deleted while messages are pushed to it. Try again.")

    def _partition_pushes(
        self, request: _Request, partition_ids: Mapping[PartitionName, PartitionId]
    ) -> dict[PartitionName, PartitionPush]:
        return {
            name: PartitionPush(
                self.segment(partition_ids[name], request.messages, request.message_ids, indexes)
            )
            for name, indexes in request.pending.items()
        }

    def _apply_outcomes(
        self,
        request: _Request,
        partition_ids: Mapping[PartitionName, PartitionId],
        partition_pushes: Mapping[PartitionName, PartitionPush],
    ) -> dict[PartitionName, Segment]:
        """Set the results of appended messages and return the segments that have to join their lanes.

        Messages of deleted partitions stay pending.
        """
        request.awaits_database = False
        blocked: dict[PartitionName, Segment] = {}
        for name, push in partition_pushes.items():
            if push.partition_deleted:
                self._context.id_cache.invalidate_queue(request.scope, name.queue)
                continue
            if push.blocked_by_lane:
                blocked[name] = push.segment
                continue
            indexes = request.pending.pop(name)
            ids = partition_ids[name]
            for item, index in enumerate(indexes):
                message, message_id = request.messages[index], request.message_ids[index]
                request.results[index] = push_result(push, item, message, message_id, ids.partition_id)
            self.count(request.scope, name, ids, len(indexes) - len(push.duplicates) - len(push.rejected))
        return blocked

    async def _defer(
        self,
        request: _Request,
        partition_ids: Mapping[PartitionName, PartitionId],
        segments: Mapping[PartitionName, Segment],
        reason: str,
    ) -> None:
        """Append segments to their lanes, if those may grow."""
        if reason == MAINTAINING_ORDER and self._load.enabled and not self._load.may_defer("push"):
            request.overloaded = True
            error = Overloaded(self._load.retry_after_s("push")).detail
            for name in segments:
                request.fail(name, error)
            return
        request.awaits_database = True
        receipts = await self._deferred_writes.defer_pushes(segments, reason)
        request.awaits_database = False
        for name, receipt in zip(segments, receipts, strict=True):
            if receipt is None:
                self._context.id_cache.invalidate_queue(request.scope, name.queue)
            else:
                request.defer(name, receipt, partition_ids[name].partition_id)

    async def _may_journal(self, request: _Request, error: DatabaseUnavailable) -> bool:
        """Return True if the pending messages may go to the journal.

        That needs a journal, a confirmed outage, and no risk of storing a message twice. If PostgreSQL went
        away while it executed a write, only a message with a transaction id is safe to write again, because
        its duplicate is detected.
        """
        if self._deferred_writes.journal is None or not await self._context.database.outage.confirm():
            return False
        if not (request.awaits_database and isinstance(error, OutcomeUnknown)):
            return True
        return all(
            request.messages[index].transaction_id is not None
            for indexes in request.pending.values()
            for index in indexes
        )

    async def _write_to_journal(self, request: _Request) -> bool:
        """Write the pending messages to the journal; return False if the journal is not needed any more."""
        receipts = await self._deferred_writes.journal_pushes(
            request.scope, request.messages, request.message_ids, request.pending
        )
        if receipts is None:
            return False
        for name, receipt in receipts.items():
            request.defer(name, receipt, None)
        return True

    def segment(
        self,
        ids: PartitionId,
        messages: Sequence[NewMessage],
        message_ids: list[str],
        indexes: list[int],
    ) -> Segment:
        """Build the segment that stores the messages at `indexes`, encrypted if the queue is."""
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

    def count(self, scope: Scope, name: PartitionName, ids: PartitionId, appended: int) -> None:
        """Count appended messages in the metrics and wake a parked pop."""
        if appended:
            self._context.metrics.count_pushed(scope, ids.queue_id, name.queue, appended)
            self._context.wakeups.notify(ids.queue_id, 1, (ids.partition_id,))

    async def _execute(self, key: Hashable, requests: Sequence[list[PartitionPush]]) -> list[None]:
        merged: dict[int, Segment] = {}
        # Each push with the index of its first message in the merged segment of its partition.
        pushes_with_start: list[tuple[PartitionPush, int]] = []
        for request in requests:
            for push in request:
                segment = push.segment
                merged_segment = merged.get(segment.partition_id)
                if merged_segment is None:
                    merged[segment.partition_id] = Segment(
                        segment.partition_id,
                        list(segment.message_ids),
                        list(segment.transaction_ids),
                        list(segment.trace_ids),
                        list(segment.payloads),
                    )
                    pushes_with_start.append((push, 0))
                    continue
                pushes_with_start.append((push, len(merged_segment.message_ids)))
                merged_segment.message_ids += segment.message_ids
                merged_segment.transaction_ids += segment.transaction_ids
                merged_segment.trace_ids += segment.trace_ids
                merged_segment.payloads += segment.payloads
        segments = [merged[partition_id] for partition_id in sorted(merged)]  # the lock order of positions
        pushed = await log.push(self._context.database, segments)
        for segment, first_offset in zip(segments, pushed.first_offsets, strict=True):
            if first_offset is None or first_offset == BLOCKED_BY_LANE:
                for push, _ in pushes_with_start:
                    if push.segment.partition_id == segment.partition_id:
                        push.partition_deleted = first_offset is None
                        push.blocked_by_lane = first_offset == BLOCKED_BY_LANE
        if pushed.duplicates or pushed.refused:
            segment_starts: dict[int, int] = {}
            next_start = 0
            for segment in segments:
                segment_starts[segment.partition_id] = next_start
                next_start += len(segment.message_ids)
            for push, start in pushes_with_start:
                first = segment_starts[push.segment.partition_id] + start
                for item in range(len(push.segment.message_ids)):
                    if first + item in pushed.duplicates:
                        push.duplicates[item] = pushed.duplicates[first + item]
                    elif first + item in pushed.refused:
                        push.rejected.add(item)
        return [None] * len(requests)


def _size(partition_pushes: Mapping[PartitionName, PartitionPush]) -> tuple[int, int]:
    """Return the number of messages and the total size of their payloads in bytes."""
    payloads = [payload for push in partition_pushes.values() for payload in push.segment.payloads]
    return len(payloads), sum(map(len, payloads))


def push_result(
    push: PartitionPush, item: int, message: NewMessage, message_id: str, partition_id: int
) -> PushResult:
    """Return the result of one message of an executed push."""
    if item in push.rejected:
        return failed_push(message, "The queue has reached its maxSize. Retry when messages are acked.")
    original_id = push.duplicates.get(item)
    return PushResult(
        "queued" if original_id is None else "duplicate",
        message.transaction_id or message_id,
        message_id if original_id is None else str(original_id),
        partition_id,
    )


def failed_push(message: NewMessage, error: str) -> PushResult:
    return PushResult("failed", message.transaction_id, None, None, error)
