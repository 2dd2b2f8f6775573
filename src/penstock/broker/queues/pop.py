"""Pop: requests of one group merged into one call, and parked while there is nothing."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.batching import Batcher, Receiver
from penstock.broker.context import BrokerContext
from penstock.broker.encryption import KeyMissing
from penstock.broker.messages import Lease, Message, PopResult
from penstock.broker.queues import pop_rows
from penstock.broker.wakeups import Watch
from penstock.clock import Clock
from penstock.durable import log
from penstock.durable.faults import GroupGone
from penstock.durable.log import GroupId, PartitionName, PopRequest
from penstock.ids import new_id_text
from penstock.model import Scope

RESOLVE_ATTEMPTS = 5
NO_PARTITION = 0


@dataclass(frozen=True, slots=True)
class PopOptions:
    """What a consumer asks for."""

    batch: int = 1
    partition: str | None = None
    partitions: int = 1
    auto_ack: bool = False
    subscription: str = "all"
    wait_s: float = 0.0


class _Key(NamedTuple):
    queue_id: int
    group_id: int
    partition_id: int | None
    lease_ms: int
    auto_ack: bool
    single: bool
    """One message from any partition under a lease, as most consumers ask: has a call and rows of its own."""


class PendingPop(NamedTuple):
    """A pop on its way to a batch."""

    ids: GroupId
    key: _Key
    request: PopRequest


class Pops:
    def __init__(self, context: BrokerContext, lease_ms: int, clock: Clock) -> None:
        self._context = context
        self._lease_ms = lease_ms
        self._clock = clock
        self.batcher: Batcher[PopRequest, list[Any]] = Batcher(
            self._execute, max_items=200, abandoned=self._abandoned
        )

    async def pop(self, scope: Scope, queue: str, group: str, options: PopOptions) -> PopResult:
        """Lease the next messages, or take them for good with `auto_ack`.

        With `wait_s`, wait that long for the first one. Cancelling a pop gives back what it had leased.
        """
        if not options.wait_s:
            popped = await self._once(scope, queue, group, options)
        else:
            ids = await self._context.id_cache.group(scope, queue, group, options.subscription)
            popped = await self._waiting(scope, {ids.queue_id: queue}, group, options)
        self._context.metrics.requests.pop += 1
        return popped

    async def pop_any(
        self, scope: Scope, namespace: str | None, task: str | None, group: str, options: PopOptions
    ) -> PopResult:
        """The same from whichever queue of a namespace and task has something: higher priority first."""
        queues = await self._context.id_cache.matching(scope, namespace, task)
        take = self._waiting if options.wait_s else self._first
        popped = await take(scope, queues, group, options)
        self._context.metrics.requests.pop += 1
        return popped

    def start(
        self, scope: Scope, queue: str, group: str, options: PopOptions, receiver: Receiver[list[Any]]
    ) -> PendingPop | None:
        """Send a pop on its way that needs nothing else first: its rows reach the receiver, for `finish`.

        None if it does; that is for `pop`, as is waiting when there is nothing.
        """
        ids = self._context.id_cache.known_group(scope, queue, group)
        if ids is None or options.partition is not None:
            return None
        begun = self._begin(ids, None, options)
        self.batcher.put(begun.key, begun.request, receiver)
        return begun

    def finish(
        self, scope: Scope, queue: str, group: str, options: PopOptions, begun: PendingPop, rows: list[Any]
    ) -> PopResult:
        """What was popped. Raises KeyMissing, and gives it back."""
        try:
            messages = self._messages(begun.key, rows)
        except KeyMissing:
            self.batcher.undo(begun.key, begun.request, rows)
            raise
        if messages or not options.wait_s:
            self._context.metrics.requests.pop += 1
        return self._popped(scope, queue, group, options, begun, rows, messages)

    async def release_lease(self, scope: Scope, popped: PopResult) -> None:
        """Undo a pop whose answer nobody is left to receive; what was auto-acked cannot be."""
        lease = Lease.parse(popped.lease)
        if lease is not None:
            partitions = {message.partition_id for message in popped.messages}
            await log.release(self._context.database, lease.group_id, lease.lease_id, partitions)
            ids = await self._context.id_cache.group(scope, popped.queue, popped.group)
            self._context.wakeups.notify(ids.queue_id, len(partitions), partitions)

    async def _waiting(self, scope: Scope, queues: dict[int, str], group: str, options: PopOptions) -> PopResult:
        waiters = self._context.wakeups.parked_pops
        deadline = time.monotonic() + options.wait_s
        partition_id = None
        if options.partition is not None:
            [queue] = queues.values()
            partition_id = await self._partition_id(scope, queue, options.partition) or NO_PARTITION
        with waiters.watch(queues, group, partition_id) as watch:
            woken = False
            while True:
                try:
                    popped = await self._first(scope, queues, group, options)
                except BaseException:
                    if woken:
                        waiters.wake_like(watch)  # what this one was woken for is still there
                    raise
                if popped.messages:
                    waiters.wake_like(watch)  # there may be more than this one could take
                    return popped
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return popped
                if not watch.signalled and not await self._set_timers(scope, queues, watch):
                    return popped
                woken = await waiters.park(watch, left_s)
                if not woken:
                    return popped

    async def _set_timers(self, scope: Scope, queues: dict[int, str], watch: Watch) -> bool:
        """Have one like it woken when a lease or a delay that is in the way now ends.

        False if a queue was deleted and made anew: nobody would call us under its old id.
        """
        for queue_id, queue in queues.items():
            ids = await self._context.id_cache.group(scope, queue, watch.group)
            if ids.queue_id != queue_id:
                return False
            delay_s = await log.next_ready(self._context.database, ids.group_id, watch.partition_id)
            if delay_s is not None:
                # Something already due is held by another transaction: look again shortly.
                delay_s = max(delay_s, 0.02)
                self._context.wakeups.parked_pops.wake_in(queue_id, watch.group, delay_s, watch.partition_id)
        return True

    async def _partition_id(self, scope: Scope, queue: str, partition: str) -> int | None:
        """None if the queue has all the partitions it may have, and this is none of them."""
        name = PartitionName(queue, partition)
        found = (await self._context.id_cache.partitions(scope, [name])).get(name)
        return found.partition_id if found else None

    async def _first(self, scope: Scope, queues: dict[int, str], group: str, options: PopOptions) -> PopResult:
        popped = PopResult("", "", group, [], 0)
        for queue in queues.values():
            popped = await self._once(scope, queue, group, options)
            if popped.messages:
                break
        return popped

    async def _once(self, scope: Scope, queue: str, group: str, options: PopOptions) -> PopResult:
        for _ in range(RESOLVE_ATTEMPTS):
            ids = await self._context.id_cache.group(scope, queue, group, options.subscription)
            partition_id = None
            if options.partition is not None:
                partition_id = await self._partition_id(scope, queue, options.partition)
                if partition_id is None:
                    break
            begun = self._begin(ids, partition_id, options)
            try:
                rows = await self.batcher.submit(begun.key, begun.request)
            except GroupGone:
                self._context.id_cache.invalidate_queue(scope, queue)
                continue
            try:
                messages = self._messages(begun.key, rows)
            except KeyMissing:
                await self._abandoned(begun.key, begun.request, rows)
                raise
            return self._popped(scope, queue, group, options, begun, rows, messages)
        return PopResult(queue, "", group, [], 0)

    def _begin(self, ids: GroupId, partition_id: int | None, options: PopOptions) -> PendingPop:
        lease_ms = ids.lease_ms or self._lease_ms
        width = 1 if partition_id is not None else options.partitions
        single = options.batch == width == 1 and partition_id is None and not options.auto_ack
        key = _Key(ids.queue_id, ids.group_id, partition_id, lease_ms, options.auto_ack, single)
        return PendingPop(ids, key, PopRequest(new_id_text(), options.batch, width))

    def _popped(
        self,
        scope: Scope,
        queue: str,
        group: str,
        options: PopOptions,
        begun: PendingPop,
        rows: list[Any],
        messages: list[Message],
    ) -> PopResult:
        self._count(scope, queue, group, begun.ids, rows, messages, options.auto_ack)
        if not messages:
            return PopResult(queue, "", group, messages, 0)
        lease = "" if options.auto_ack else f"{begun.ids.group_id}.{begun.request.lease_id}"
        partitions = 1 if len(messages) == 1 else len({m.partition_id for m in messages})
        return PopResult(queue, lease, group, messages, partitions)

    def _count(
        self,
        scope: Scope,
        queue: str,
        group: str,
        ids: GroupId,
        rows: list[Any],
        messages: list[Message],
        auto_ack: bool,
    ) -> None:
        expired = sum([row["leased_to"] - row["leased_from"] for row in rows if not row[0]])
        if expired:
            self._context.metrics.expired(scope, ids.queue_id, queue, group, expired)
        if messages:
            now = self._clock()
            waits: list[int] = []
            created_at, wait_ms = 0.0, 0
            for message in messages:
                if message.created_at != created_at:  # messages of one segment share it
                    created_at = message.created_at
                    wait_ms = max(0, int((now - created_at) * 1000))
                waits.append(wait_ms)
            self._context.metrics.popped(scope, ids.queue_id, queue, group, waits)
            if auto_ack:
                self._context.metrics.settled(scope, ids.queue_id, queue, group, "completed", [0] * len(messages))

    def _messages(self, key: _Key, rows: list[Any]) -> list[Message]:
        read = pop_rows.single if key.single else pop_rows.many
        return read(rows, self._context.cipher)

    async def _execute(self, key: Hashable, requests: Sequence[PopRequest]) -> list[list[Any]]:
        assert isinstance(key, _Key)
        database = self._context.database
        if key.single:
            leases = [request.lease_id for request in requests]
            rows = await log.pop_single(database, key.group_id, leases, lease_ms=key.lease_ms)
        else:
            rows = await log.pop(
                database,
                key.group_id,
                requests,
                partition_id=key.partition_id,
                lease_ms=key.lease_ms,
                auto_ack=key.auto_ack,
            )
        per_request: list[list[Any]] = [[] for _ in requests]
        for row in rows:
            # What expired was nobody's; the first request reports it.
            per_request[max(row[0] - 1, 0)].append(row)
        return per_request

    async def _abandoned(self, key: Hashable, request: PopRequest, rows: list[Any]) -> None:
        """Give back at once what was leased for a consumer that has left."""
        assert isinstance(key, _Key)
        partitions = {row["partition_id"] for row in rows if row["request"]}
        if partitions and not key.auto_ack:
            await log.release(self._context.database, key.group_id, request.lease_id, partitions)
            self._context.wakeups.notify(key.queue_id, len(partitions), partitions)
