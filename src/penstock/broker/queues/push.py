"""Push messages: resolve names, encrypt payloads, and write the segments of many requests in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from penstock.batching import Batcher, Receiver
from penstock.broker.context import BrokerContext
from penstock.broker.messages import NewMessage, PushResult
from penstock.broker.overload.deferred import (
    MAINTAINING_ORDER,
    SYSTEM_BUSY,
    DeferredSegment,
    DeferredWrites,
)
from penstock.broker.overload.load import Decision, LoadMonitor
from penstock.caller import CallerQuotas
from penstock.durable import log
from penstock.durable.log import BLOCKED_BY_LANE, PartitionId, PartitionName, PushReceipt, Segment
from penstock.errors import DatabaseUnavailable, OutcomeUnknown, Overloaded, QuotaExceeded
from penstock.ids import new_id_text
from penstock.model import Scope

RESOLVE_ATTEMPTS = 5
MAX_SIZE_ERROR = "The queue has reached its maxSize. Retry when messages are acked."


class SegmentReceipt(NamedTuple):
    """The result of one segment: its first offset, and where its messages are in the receipt of the batch."""

    first_offset: int | None
    first_item: int
    batch: PushReceipt


class PendingPush:
    """A push between `start` and its results: the messages still to store, and the results of the others."""

    __slots__ = (
        "awaits_database",
        "blocked",
        "decision",
        "exceeded_quota",
        "is_queued",
        "message_ids",
        "messages",
        "overloaded",
        "partition_ids",
        "pending",
        "quotas",
        "results",
        "scope",
        "segments",
    )

    def __init__(
        self,
        scope: Scope,
        messages: Sequence[NewMessage],
        decision: Decision = Decision.EXECUTE,
        quotas: CallerQuotas | None = None,
    ) -> None:
        self.scope = scope
        self.quotas = quotas
        self.messages = messages
        self.decision = decision
        self.message_ids = [new_id_text() for _ in messages]
        self.results: list[PushResult | None] = [None] * len(messages)
        self.pending: dict[PartitionName, list[int]] = {}
        """The indexes of the messages still to store, by partition."""
        self.partition_ids: Mapping[PartitionName, PartitionId]
        self.segments: Mapping[PartitionName, Segment]
        """The pending messages, once their partitions are resolved."""
        self.blocked: list[PartitionName] = []
        """Partitions whose deferred operations come first: nothing was appended to them."""
        self.is_queued = False
        """The push waits for its batch. If not, `resume` executes it."""
        self.awaits_database = False
        """PostgreSQL is executing a write of this push and has not answered yet."""
        self.overloaded = False
        self.exceeded_quota: QuotaExceeded | None = None
        for index, message in enumerate(messages):
            self.pending.setdefault(PartitionName(message.queue, message.partition), []).append(index)

    def fail(self, name: PartitionName, error: str) -> None:
        for index in self.pending.pop(name):
            transaction_id = self.messages[index].transaction_id
            self.results[index] = PushResult("failed", transaction_id, None, None, error)

    def defer(self, name: PartitionName, deferred: DeferredSegment, partition_id: int | None) -> None:
        for item, index in enumerate(self.pending.pop(name)):
            message_id = self.message_ids[index]
            transaction_id = self.messages[index].transaction_id
            if item in deferred.duplicates:
                original_id = str(deferred.duplicates[item])
                result = PushResult("duplicate", transaction_id or message_id, original_id, partition_id)
            elif item in deferred.refused:
                result = PushResult("failed", transaction_id, None, None, MAX_SIZE_ERROR)
            else:
                result = PushResult("queued", transaction_id or message_id, message_id, partition_id)
                result.deferral = deferred.receipt
            self.results[index] = result


class Pushes:
    """Append messages to the log, defer them, or write them to the journal."""

    def __init__(self, context: BrokerContext, load: LoadMonitor, deferred_writes: DeferredWrites) -> None:
        self._context = context
        self._load = load
        self._deferred_writes = deferred_writes
        self.batcher: Batcher[list[Segment], list[SegmentReceipt]] = Batcher(
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
        batch_done: asyncio.Future[list[SegmentReceipt]] = asyncio.get_running_loop().create_future()
        push = self.start(scope, messages, batch_done, decision)
        if not push.is_queued:
            return await self.resume(push)
        try:
            receipts = await batch_done
        except DatabaseUnavailable as error:
            return await self.resume(push, error)
        self.set_results(push, receipts)
        return await self.resume(push) if push.pending else self.results(push)

    def start(
        self,
        scope: Scope,
        messages: Sequence[NewMessage],
        receiver: Receiver[list[SegmentReceipt]],
        decision: Decision = Decision.EXECUTE,
        quotas: CallerQuotas | None = None,
    ) -> PendingPush:
        """Queue messages for their batch, if all their partitions are cached and nothing has to be deferred.

        The receiver gets the receipts, for `set_results`, or an error, for `resume`. If the push is not
        queued (`is_queued`), `resume` executes it alone.
        """
        push = PendingPush(scope, messages, decision, quotas)
        if decision is Decision.EXECUTE and not self._deferred_writes.uses_journal:
            partition_ids = self._context.id_cache.cached_partitions(scope, push.pending)
            if partition_ids is not None:
                self._queue(push, partition_ids, receiver)
        return push

    def _queue(
        self,
        push: PendingPush,
        partition_ids: Mapping[PartitionName, PartitionId],
        receiver: Receiver[list[SegmentReceipt]],
    ) -> None:
        self.build_segments(push, partition_ids)
        push.is_queued = push.awaits_database = True
        segments = list(push.segments.values())
        payloads = [payload for segment in segments for payload in segment.payloads]
        self.batcher.put(None, segments, receiver, items=len(payloads), size=sum(map(len, payloads)))

    def build_segments(self, push: PendingPush, partition_ids: Mapping[PartitionName, PartitionId]) -> None:
        """Build one segment for each partition with pending messages, encrypted if its queue is.

        They are in the order of partition ids, in which pushes and acks lock positions.
        """
        messages, message_ids = push.messages, push.message_ids
        segments: dict[PartitionName, Segment] = {}
        for _, name in sorted([(partition_ids[name].partition_id, name) for name in push.pending]):
            ids, indexes = partition_ids[name], push.pending[name]
            payloads = [messages[i].payload for i in indexes]
            if ids.encrypted:
                payloads = [self._context.cipher.encrypt(payload) for payload in payloads]
            segments[name] = Segment(
                ids.partition_id,
                [message_ids[i] for i in indexes],
                [messages[i].transaction_id for i in indexes],
                [messages[i].trace_id for i in indexes],
                payloads,
            )
        push.partition_ids, push.segments = partition_ids, segments

    def set_results(self, push: PendingPush, receipts: Sequence[SegmentReceipt]) -> None:
        """Set the results of appended messages, count them and wake a parked pop.

        Messages of deleted partitions and of blocked ones stay pending: `resume` stores them.
        """
        push.awaits_database = False
        push.blocked = []
        context = self._context
        for name, (first_offset, first_item, batch) in zip(push.segments, receipts, strict=True):
            if first_offset is None:
                context.id_cache.invalidate_queue(push.scope, name.queue)
                continue
            if first_offset == BLOCKED_BY_LANE:
                push.blocked.append(name)
                continue
            queue_id, partition_id, _ = push.partition_ids[name]
            appended = 0
            for item, index in enumerate(push.pending.pop(name), first_item):
                message_id = push.message_ids[index]
                transaction_id = push.messages[index].transaction_id
                if item in batch.duplicates:
                    original_id = str(batch.duplicates[item])
                    result = PushResult("duplicate", transaction_id or message_id, original_id, partition_id)
                elif item in batch.refused:
                    result = PushResult("failed", transaction_id, None, None, MAX_SIZE_ERROR)
                else:
                    result = PushResult("queued", transaction_id or message_id, message_id, partition_id)
                    appended += 1
                push.results[index] = result
            if appended:
                context.metrics.count_pushed(push.scope, queue_id, name.queue, appended)
                context.wakeups.notify(queue_id, 1, (partition_id,))

    def results(self, push: PendingPush) -> list[PushResult]:
        """Return one result per message, and count the request."""
        results = [result for result in push.results if result is not None]
        if push.overloaded and all(result.status == "failed" for result in results):
            raise Overloaded(self._load.retry_after_s("push"))
        if push.exceeded_quota is not None and all(result.status == "failed" for result in results):
            raise push.exceeded_quota
        self._context.metrics.requests.push += 1
        return results

    async def resume(self, push: PendingPush, error: Exception | None = None) -> list[PushResult]:
        """Store the pending messages: defer, resolve partitions again, or write them to the journal.

        `error` is the failure of the batch; it is raised again if the journal cannot take the messages.
        """
        try:
            if error is not None:
                raise error
            await self._store_pending(push)
        except DatabaseUnavailable as unavailable:
            if not await self._may_journal(push, unavailable) or not await self._write_to_journal(push):
                raise
        return self.results(push)

    async def _store_pending(self, push: PendingPush) -> None:
        if not push.is_queued and self._deferred_writes.uses_journal and await self._write_to_journal(push):
            return
        if push.blocked:
            await self._defer(push, push.blocked, MAINTAINING_ORDER)
        if push.pending:
            await self._write_to_database(push)

    async def _write_to_database(self, push: PendingPush) -> None:
        id_cache, scope = self._context.id_cache, push.scope
        for _ in range(RESOLVE_ATTEMPTS):
            limits = None if push.quotas is None else push.quotas.creation_limits
            partition_ids = await id_cache.resolve_partitions(scope, push.pending, limits)
            for name in [name for name in push.pending if name not in partition_ids]:
                await self._refuse(push, name)
            if not push.pending:
                return
            if push.decision is Decision.EXECUTE:
                batch_done: asyncio.Future[list[SegmentReceipt]] = asyncio.get_running_loop().create_future()
                self._queue(push, partition_ids, batch_done)
                self.set_results(push, await batch_done)
                await self._defer(push, push.blocked, MAINTAINING_ORDER)
            else:
                self.build_segments(push, partition_ids)
                await self._defer(push, list(push.segments), SYSTEM_BUSY)
            if not push.pending:
                return
        raise DatabaseUnavailable("The queue is being deleted while messages are pushed to it. Try again.")

    async def _refuse(self, push: PendingPush, name: PartitionName) -> None:
        """Fail the messages of a partition that was not created."""
        id_cache = self._context.id_cache
        try:
            await id_cache.check_quotas(push.scope, [name], push.quotas)
            push.fail(name, await id_cache.refusal_reason(push.scope, name))
        except QuotaExceeded as error:
            push.exceeded_quota = error
            push.fail(name, error.detail)

    async def _defer(self, push: PendingPush, names: Sequence[PartitionName], reason: str) -> None:
        """Append the segments of these partitions to their lanes, if those may grow."""
        if not names:
            return
        if reason == MAINTAINING_ORDER and self._load.enabled and not self._load.may_defer("push"):
            push.overloaded = True
            error = Overloaded(self._load.retry_after_s("push")).detail
            for name in names:
                push.fail(name, error)
            return
        push.awaits_database = True
        segments = [push.segments[name] for name in names]
        results = await self._deferred_writes.defer_pushes(segments, reason)
        push.awaits_database = False
        for name, deferred in zip(names, results, strict=True):
            if deferred is None:
                self._context.id_cache.invalidate_queue(push.scope, name.queue)
            else:
                push.defer(name, deferred, push.partition_ids[name].partition_id)

    async def _may_journal(self, push: PendingPush, error: DatabaseUnavailable) -> bool:
        """Return True if the pending messages may go to the journal.

        That needs a journal, a confirmed outage, and no risk of storing a message twice. If PostgreSQL went
        away while it executed a write, only a message with a transaction id is safe to write again, because
        its duplicate is detected.
        """
        if self._deferred_writes.journal is None or not await self._context.database.outage.confirm():
            return False
        if not (push.awaits_database and isinstance(error, OutcomeUnknown)):
            return True
        return all(
            push.messages[index].transaction_id is not None
            for indexes in push.pending.values()
            for index in indexes
        )

    async def _write_to_journal(self, push: PendingPush) -> bool:
        """Write the pending messages to the journal; return False if the journal is not needed any more."""
        receipts = await self._deferred_writes.journal_pushes(
            push.scope, push.messages, push.message_ids, push.pending
        )
        if receipts is None:
            return False
        for name, receipt in receipts.items():
            push.defer(name, DeferredSegment(receipt, {}, set()), None)
        return True

    async def _execute(self, key: Hashable, requests: Sequence[list[Segment]]) -> list[list[SegmentReceipt]]:
        segments = [(s.partition_id, number, s) for number, request in enumerate(requests) for s in request]
        segments.sort(key=itemgetter(0, 1))  # by partition: the lock order of positions
        batch = await log.push(self._context.database, [segment for _, _, segment in segments])
        receipts: list[list[SegmentReceipt]] = [[] for _ in requests]
        first_item = 0
        for (_, number, segment), first_offset in zip(segments, batch.first_offsets, strict=True):
            receipts[number].append(SegmentReceipt(first_offset, first_item, batch))
            first_item += len(segment.message_ids)
        return receipts
