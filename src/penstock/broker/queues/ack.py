"""Acks, lease extensions and transactions of consumers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

from penstock.batching import Batcher, BatchStats, Receiver, split_results
from penstock.broker.context import BrokerContext
from penstock.broker.messages import MessageLease, NewMessage, PushResult
from penstock.broker.overload.deferred import DeferredWrites
from penstock.broker.overload.load import Decision
from penstock.broker.queues.id_cache import AckLabelCache
from penstock.broker.queues.push import PendingPush, Pushes, SegmentReceipt
from penstock.caller import CallerQuotas, environment_prefix
from penstock.durable import log
from penstock.durable.log import (
    REJECTED_OUTCOMES,
    Ack,
    AckReceipt,
    PushReceipt,
    Segment,
    TransactionReceipt,
)
from penstock.errors import TransactionFailed
from penstock.model import Scope


@dataclass(slots=True)
class TransactionResult:
    push_results: list[PushResult]
    ack_receipts: list[AckReceipt]


NO_LEASE = MessageLease(0, str(uuid.UUID(int=0)))
"""A lease that is never in force. It replaces leases of other environments, so that they are lost too."""


class Acks:
    """Execute or defer acks; extend leases; push and ack in one transaction.

    A lease of another environment is answered like a lost lease, and nothing of that environment is read.
    """

    def __init__(self, context: BrokerContext, pushes: Pushes, deferred_writes: DeferredWrites) -> None:
        self._context = context
        self._pushes = pushes
        self._deferred_writes = deferred_writes
        self._label_cache = AckLabelCache()
        self.batcher: Batcher[Sequence[Ack], list[AckReceipt]] = Batcher(self._execute_acks)
        self.extend_batcher: Batcher[tuple[MessageLease, int], datetime | None] = Batcher(
            self._execute_extends
        )
        self.transaction_stats = BatchStats()

    async def ack(
        self, scope: Scope, acks: Sequence[Ack], decision: Decision = Decision.EXECUTE
    ) -> list[AckReceipt]:
        """Ack messages, now or deferred; one receipt each, in order. A rejected ack changes nothing."""
        if decision is Decision.DEFER:
            return await self.defer(scope, acks)
        return await self.batcher.submit(scope, acks, items=len(acks))

    def start(self, scope: Scope, acks: Sequence[Ack], receiver: Receiver[list[AckReceipt]]) -> None:
        """Queue acks for execution now. The receiver gets one receipt each, in order."""
        self.batcher.put(scope, acks, receiver, items=len(acks))

    async def defer(self, scope: Scope, acks: Sequence[Ack]) -> list[AckReceipt]:
        """Accept acks as operations of their partitions' lanes; one receipt each, in order."""
        indexes_by_partition: dict[int, list[int]] = {}
        acks = _confine(scope, acks)
        for index, ack in enumerate(acks):
            indexes_by_partition.setdefault(ack.partition_id, []).append(index)
        deferred = await self._deferred_writes.defer_acks(
            {
                partition_id: [acks[i] for i in indexes]
                for partition_id, indexes in indexes_by_partition.items()
            }
        )
        receipts = [AckReceipt("lease_lost")] * len(acks)
        for partition_id, indexes in indexes_by_partition.items():
            deferred_acks = deferred[partition_id]
            for item, index in enumerate(indexes):
                if item not in deferred_acks.rejected:
                    receipts[index] = AckReceipt("accepted", deferral=deferred_acks.receipt)
        self._context.metrics.requests.ack += 1
        return receipts

    async def extend(self, scope: Scope, lease: MessageLease, ms: int) -> datetime | None:
        """Extend a lease to at least `ms` from now and return its new end; None if the lease is lost."""
        if not lease.is_of(scope):
            return None
        return await self.extend_batcher.submit(None, (lease, ms))

    async def transaction(
        self,
        scope: Scope,
        messages: Sequence[NewMessage],
        acks: Sequence[Ack],
        quotas: CallerQuotas | None = None,
    ) -> TransactionResult:
        """Push and ack atomically. If it raises TransactionFailed or QuotaExceeded, nothing has changed."""
        push = PendingPush(scope, messages)
        acks = _confine(scope, acks)
        id_cache = self._context.id_cache
        limits = None if quotas is None else quotas.creation_limits
        if limits is not None and id_cache.cached_partitions(scope, push.pending) is None and push.pending:
            await id_cache.check_quotas(scope, push.pending, quotas)
        partition_ids = await id_cache.resolve_partitions(scope, push.pending, limits)
        for name, indexes in push.pending.items():
            if name not in partition_ids:
                await id_cache.check_quotas(scope, [name], quotas)
                raise TransactionFailed("push", indexes[0], await id_cache.refusal_reason(scope, name))
        self._pushes.build_segments(push, partition_ids)
        segments = list(push.segments.values())
        indexes_in_segments = [index for name in push.segments for index in push.pending[name]]
        started = time.perf_counter()
        try:
            done = await self._deferred_writes.execute_after_lanes(
                lambda: self._attempt_transaction(segments, acks)
            )
        except TransactionFailed as failure:
            self.transaction_stats.failures += 1
            if failure.kind == "push":
                for name in push.segments:
                    id_cache.invalidate_queue(scope, name.queue)
                raise TransactionFailed("push", indexes_in_segments[failure.item], failure.reason) from None
            raise
        self.transaction_stats.add(1, len(messages) + len(acks), time.perf_counter() - started)
        self._context.metrics.requests.transaction += 1
        self._context.metrics.requests.transaction_messages += len(messages) + len(acks)
        batch = PushReceipt([0] * len(segments), done.duplicates, frozenset())
        first_items = accumulate([len(segment.message_ids) for segment in segments], initial=0)
        receipts = [SegmentReceipt(0, first, batch) for first, _ in zip(first_items, segments, strict=False)]
        self._pushes.set_results(push, receipts)
        self._count(scope, acks, done.acks, all_released=True)
        push_results = [result for result in push.results if result is not None]
        return TransactionResult(push_results, done.acks)

    async def _attempt_transaction(
        self, segments: Sequence[Segment], acks: Sequence[Ack]
    ) -> TransactionReceipt | None:
        """Execute a transaction; None if operations wait in the lane of one of its partitions."""
        try:
            return await log.transaction(self._context.database, segments, acks)
        except TransactionFailed as failure:
            if failure.reason != "operations_waiting":
                raise
            return None

    async def find_leases(
        self, scope: Scope, partition_ids: Sequence[int], leases: Sequence[MessageLease]
    ) -> dict[int, MessageLease]:
        """Return which of the leases holds each partition, for acks that name no lease."""
        if len(leases) == 1:
            return dict.fromkeys(partition_ids, leases[0])
        rows = await log.find_live_leases(
            self._context.database,
            partition_ids,
            [lease.lease_id for lease in leases if lease.is_of(scope)],
        )
        return {row.partition_id: MessageLease(row.group_id, str(row.lease_id)) for row in rows}

    def _count(
        self, scope: Scope, acks: Sequence[Ack], receipts: Sequence[AckReceipt], all_released: bool = False
    ) -> None:
        """Count acks in the metrics, and wake parked pops of the partitions whose lease was released.

        A transaction does not report which leases it released (`all_released`), so it may be any of them.
        """
        run_times: dict[tuple[int, str, str, str], list[int]] = {}
        released_partitions: dict[int, set[int]] = {}
        last, run_times_ms, partition_ids = None, list[int](), set[int]()
        for ack, receipt in zip(acks, receipts, strict=True):
            if receipt is not last:  # messages of one lease share their receipt
                last = receipt
                outcome, queue_id, queue, _, group, released, run_ms, _ = receipt
                run_times_ms, partition_ids = [], set()
                if outcome not in REJECTED_OUTCOMES and queue_id is not None:
                    assert queue is not None
                    assert group is not None
                    run_times_ms = run_times.setdefault((queue_id, queue, group, outcome), run_times_ms)
                    if released or all_released:
                        partition_ids = released_partitions.setdefault(queue_id, partition_ids)
            run_times_ms.append(run_ms or 0)
            partition_ids.add(ack.partition_id)
        for (queue_id, queue, group, outcome), run_times_ms in run_times.items():
            self._context.metrics.count_acked(scope, queue_id, queue, group, outcome, run_times_ms)
        for queue_id, partition_ids in released_partitions.items():
            self._context.wakeups.notify(queue_id, len(partition_ids), partition_ids)

    async def _execute_acks(
        self, scope: Hashable, requests: Sequence[Sequence[Ack]]
    ) -> list[list[AckReceipt]]:
        assert isinstance(scope, Scope)
        prefix = environment_prefix(scope)
        acks = [  # as `_confine` does
            ack if str(ack.lease_id).startswith(prefix) else _without_lease(ack)
            for request in requests
            for ack in request
        ]
        receipts = await self._ack(acks)
        self._count(scope, acks, receipts)
        self._context.metrics.requests.ack += len(requests)
        return split_results(requests, receipts)

    async def _ack(self, acks: Sequence[Ack]) -> list[AckReceipt]:
        # `ack_completed` handles completed messages of known names; everything else goes through `ack`.
        leases = log.group_by_lease(acks)
        labels = None if leases is None else self._label_cache.find(leases)
        if leases is None or labels is None:
            receipts = await log.ack(self._context.database, acks)
            self._label_cache.add(acks, receipts)
            return receipts
        receipts = []
        results = await log.ack_completed(self._context.database, leases)
        for lease, names, result in zip(leases, labels, results, strict=True):
            if isinstance(result, int):
                receipts += [AckReceipt("completed", *names, True, result)] * len(lease.transaction_ids)
            else:
                receipts += result
        return receipts

    async def _execute_extends(
        self, key: Hashable, requests: Sequence[tuple[MessageLease, int]]
    ) -> Sequence[datetime | None]:
        return await log.extend_leases(
            self._context.database, [(lease.group_id, lease.lease_id, ms) for lease, ms in requests]
        )


def _confine(scope: Scope, acks: Sequence[Ack]) -> Sequence[Ack]:
    """Replace the leases of other environments, so that their acks have the answer of a lost lease."""
    prefix = environment_prefix(scope)
    return [ack if str(ack.lease_id).startswith(prefix) else _without_lease(ack) for ack in acks]


def _without_lease(ack: Ack) -> Ack:
    return ack._replace(**NO_LEASE._asdict())
