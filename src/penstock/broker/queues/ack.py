"""Ack, lease extension and transactions: what a consumer says about messages it holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime

from penstock.batching import Batcher, BatchStats, Receiver
from penstock.broker.context import BrokerContext
from penstock.broker.messages import Lease, NewMessage, PushResult, AckRequest, AckOutcome
from penstock.broker.overload.deferred import DeferredWrites
from penstock.broker.overload.load import Decision
from penstock.broker.queues.names import Names
from penstock.broker.queues.push import Part, Pushes, outcome, refusal
from penstock.durable import log
from penstock.durable.faults import TransactionFailed
from penstock.durable.log import Ack, Acked, PartitionName, Segment, Transacted
from penstock.errors import Overloaded
from penstock.ids import new_id_text
from penstock.model import Scope

REFUSED = ("lease_lost", "not_leased")

LANES_S, LOOK_AGAIN_S = 5.0, 0.05
"""How long a transaction waits for the lanes it pushes to, and how often it looks."""


@dataclass(slots=True)
class TransactionResult:
    pushed: list[PushResult]
    settled: list[AckOutcome]


class Acks:
    def __init__(self, context: BrokerContext, pushes: Pushes, deferred_writes: DeferredWrites) -> None:
        self._context = context
        self._pushes = pushes
        self._deferred_writes = deferred_writes
        self._names = Names()
        self.batcher: Batcher[list[Ack], list[Acked]] = Batcher(self._execute_acks)
        self.extend_batcher: Batcher[tuple[Lease, int], datetime | None] = Batcher(self._execute_extends)
        self.transaction_stats = BatchStats()

    async def ack(
        self, scope: Scope, settlements: Sequence[AckRequest], decision: Decision = Decision.EXECUTE
    ) -> list[AckOutcome]:
        """Settle messages, or accept that for later; one result each, in order. One that is refused changes
        nothing."""
        acks = [_ack(settlement) for settlement in settlements]
        if decision is Decision.DEFER:
            accepted = await self._accept(acks)
            self._context.metrics.requests.ack += 1
            return accepted
        return self.finish(await self.batcher.submit(scope, acks, items=len(acks)))

    def start(self, scope: Scope, settlements: Sequence[AckRequest], receiver: Receiver[list[Acked]]) -> None:
        """Send acks on their way that are carried out now: what becomes of them reaches the receiver, for
        `finish`."""
        acks = [_ack(settlement) for settlement in settlements]
        self.batcher.put(scope, acks, receiver, items=len(acks))

    def finish(self, results: Sequence[Acked]) -> list[AckOutcome]:
        self._context.metrics.requests.ack += 1
        return [_result(result) for result in results]

    async def _accept(self, acks: list[Ack]) -> list[AckOutcome]:
        places: dict[int, list[int]] = {}
        for index, ack in enumerate(acks):
            places.setdefault(ack.partition_id, []).append(index)
        accepted = await self._deferred_writes.accept_acks(
            {partition_id: [acks[i] for i in indexes] for partition_id, indexes in places.items()}
        )
        results = [AckOutcome("lease_lost", None, None, False) for _ in acks]
        for partition_id, indexes in places.items():
            outcome_of = accepted[partition_id]
            for at, index in enumerate(indexes):
                if at not in outcome_of.refused:
                    results[index] = AckOutcome("accepted", None, None, False, outcome_of.accepted)
        return results

    async def extend(self, lease: Lease, ms: int) -> datetime | None:
        """When the lease ends now, at least `ms` from here; None if it is not in force any more."""
        return await self.extend_batcher.submit(None, (lease, ms))

    async def transaction(
        self,
        scope: Scope,
        messages: Sequence[NewMessage],
        settlements: Sequence[AckRequest],
    ) -> TransactionResult:
        """Push and settle in one step. Raises TransactionFailed, and then nothing has changed."""
        todo: dict[PartitionName, list[int]] = {}
        for index, message in enumerate(messages):
            todo.setdefault(PartitionName(message.queue, message.partition), []).append(index)
        known = await self._context.id_cache.partitions(scope, todo)
        for name, indexes in todo.items():
            if name not in known:
                reason = await self._context.id_cache.why_not(scope, name)
                raise TransactionFailed("push", indexes[0], reason)
        ids = [new_id_text() for _ in messages]
        segments = [self._pushes.segment(known[name], messages, ids, todo[name]) for name in todo]
        flat = [index for indexes in todo.values() for index in indexes]
        acks = [_ack(settlement) for settlement in settlements]
        started = time.perf_counter()
        try:
            done = await self._after_lanes(segments, acks)
        except TransactionFailed as failure:
            self.transaction_stats.failures += 1
            if failure.part == "push":
                for name in todo:
                    self._context.id_cache.invalidate_queue(scope, name.queue)
                raise TransactionFailed("push", flat[failure.item], failure.reason) from None
            raise
        self.transaction_stats.add(1, len(messages) + len(settlements), time.perf_counter() - started)
        self._context.metrics.requests.transaction += 1
        self._context.metrics.requests.transaction_messages += len(messages) + len(settlements)
        pushed = [refusal(message, "") for message in messages]
        at = 0
        for name, segment in zip(todo, segments, strict=True):
            indexes = todo[name]
            span = range(at, at + len(indexes))
            part = Part(
                segment, duplicates={i - at: done.duplicates[i] for i in span if i in done.duplicates}
            )
            for place, index in enumerate(indexes):
                pushed[index] = outcome(part, place, messages[index], ids[index], known[name].partition_id)
            self._pushes.count(scope, name, known[name], len(indexes) - len(part.duplicates))
            at += len(indexes)
        self._count(scope, acks, done.acked, freed_all=True)
        return TransactionResult(pushed, [_result(result) for result in done.acked])

    async def _after_lanes(self, segments: list[Segment], acks: list[Ack]) -> Transacted:
        """Carry out a transaction when nothing waits any more in the lanes it pushes to, if that is soon."""
        deadline = time.monotonic() + LANES_S
        while True:
            try:
                return await log.transaction(self._context.database, segments, acks)
            except TransactionFailed as failure:
                if failure.reason != "operations_waiting":
                    raise
                if time.monotonic() > deadline:
                    raise Overloaded from failure
            self._deferred_writes.notify_work()
            await asyncio.sleep(LOOK_AGAIN_S)

    async def leases_of(self, partition_ids: Sequence[int], leases: Sequence[Lease]) -> dict[int, Lease]:
        """Which of the leases holds each partition, for acks that do not say."""
        if len(leases) == 1:
            return dict.fromkeys(partition_ids, leases[0])
        rows = await log.leases_in_force(
            self._context.database, partition_ids, [lease.lease_id for lease in leases]
        )
        return {row["partition_id"]: Lease(row["group_id"], str(row["lease_id"])) for row in rows}

    def _count(
        self, scope: Scope, acks: Sequence[Ack], results: Sequence[Acked], freed_all: bool = False
    ) -> None:
        """Tell the metrics what was settled, and waiting pops that a partition is free again. A transaction
        does not say which leases it ended, so it may have been any."""
        runs: dict[tuple[int, str, str, str], list[int]] = {}
        freed: dict[int, set[int]] = {}
        last, times, places = None, list[int](), set[int]()
        for ack, result in zip(acks, results, strict=True):
            if result is not last:  # messages of one lease share theirs
                last = result
                what, queue_id, queue, _, group, released, run_ms = result
                times, places = [], set()
                if what not in REFUSED and queue_id is not None:
                    assert queue is not None
                    assert group is not None
                    times = runs.setdefault((queue_id, queue, group, what), times)
                    if released or freed_all:
                        places = freed.setdefault(queue_id, places)
            times.append(run_ms or 0)
            places.add(ack.partition_id)
        for (queue_id, queue, group, what), times in runs.items():
            self._context.metrics.settled(scope, queue_id, queue, group, what, times)
        for queue_id, partition_ids in freed.items():
            self._context.wakeups.notify(queue_id, len(partition_ids), partition_ids)

    async def _execute_acks(self, scope: Hashable, requests: Sequence[list[Ack]]) -> list[list[Acked]]:
        assert isinstance(scope, Scope)
        acks = [ack for request in requests for ack in request]
        results = await self._settle(acks)
        self._count(scope, acks, results)
        split: list[list[Acked]] = []
        at = 0
        for request in requests:
            split.append(results[at : at + len(request)])
            at += len(request)
        return split

    async def _settle(self, acks: list[Ack]) -> list[Acked]:
        # Where several messages of a partition are acked, nothing is as plain as `ack_completed` is made for.
        if len({ack.partition_id for ack in acks}) < len(acks):
            return await log.ack(self._context.database, acks)
        names = self._names.of(acks)
        if names is None or any(ack.status != "completed" for ack in acks):
            results = await log.ack(self._context.database, acks)
            self._names.learn(acks, results)
            return results
        done = await log.ack_completed(self._context.database, acks)
        return [
            Acked("completed", *named, True, told) if isinstance(told, int) else told
            for named, told in zip(names, done, strict=True)
        ]

    async def _execute_extends(
        self, key: Hashable, requests: Sequence[tuple[Lease, int]]
    ) -> Sequence[datetime | None]:
        return await log.extend(
            self._context.database, [(lease.group_id, lease.lease_id, ms) for lease, ms in requests]
        )


def _ack(settlement: AckRequest) -> Ack:
    lease = settlement.lease
    return Ack(
        settlement.partition_id,
        lease.group_id,
        lease.lease_id,
        settlement.transaction_id,
        settlement.status,
        settlement.error,
    )


def _result(acked: Acked) -> AckOutcome:
    return AckOutcome(acked.outcome, acked.queue, acked.partition, acked.lease_released)
