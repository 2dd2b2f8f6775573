"""Pop messages: merge requests of one group into one call, and park pops while there are no messages."""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.batching import Batcher, Receiver
from penstock.broker.context import BrokerContext
from penstock.broker.messages import Message, MessageLease, PopResult
from penstock.broker.queues import pop_rows
from penstock.broker.queues.pop_rows import PopRow
from penstock.broker.wakeups import PopWatch, name_id
from penstock.caller import Caller, token_ended
from penstock.clock import Clock
from penstock.durable import log
from penstock.durable.log import GroupId, PopRequest
from penstock.encryption import KeyMissing
from penstock.errors import GroupDeleted, Unauthorized
from penstock.ids import new_lease_id
from penstock.model import Scope

RESOLVE_ATTEMPTS = 5
MAX_BATCH_REQUESTS = 200
LOCKED_RETRY_S = 0.02
"""How soon to retry when a message is ready but another transaction holds its partition."""


@dataclass(frozen=True, slots=True)
class PopOptions:
    """Options of a pop request."""

    batch: int = 1
    partition: str | None = None
    max_partitions: int = 1
    auto_ack: bool = False
    subscription: str = "all"
    wait_s: float = 0.0


class _BatchKey(NamedTuple):
    """Pops with the same key share a database call."""

    queue_id: int
    group_id: int
    partition_id: int | None
    lease_ms: int
    auto_ack: bool
    is_single: bool
    """One leased message from any partition: the most common pop, with its own SQL function and rows."""


class _PopTarget(NamedTuple):
    """The ids of a pop's group, and of its partition if it names one."""

    ids: GroupId
    partition_id: int | None


class PendingPop(NamedTuple):
    """A pop that waits for its batch."""

    ids: GroupId
    key: _BatchKey
    request: PopRequest


class Pops:
    """Lease messages, wait for them, and release leases whose consumer is gone."""

    def __init__(self, context: BrokerContext, lease_ms: int, clock: Clock) -> None:
        self._context = context
        self._lease_ms = lease_ms
        self._clock = clock
        self.batcher: Batcher[PopRequest, list[PopRow]] = Batcher(
            self._execute, max_items=MAX_BATCH_REQUESTS, on_abandoned=self._release_abandoned
        )

    async def pop(self, caller: Caller, queue: str, group: str, options: PopOptions) -> PopResult:
        """Lease the next messages, or take them without a lease with `auto_ack`.

        With `wait_s`, wait that long for the first message. Cancelling a pop releases its lease. A queue or
        partition that does not exist has no messages; it is not created, but can be waited for. Raises
        Unauthorized if the caller's token ends meanwhile.
        """
        if not options.wait_s:
            popped = await self._pop_once(caller, queue, group, options)
        else:
            popped = await self._pop_or_wait(caller, queue, group, options)
        self.count_request()
        return popped

    async def pop_any(
        self, caller: Caller, namespace: str | None, task: str | None, group: str, options: PopOptions
    ) -> PopResult:
        """Pop from the first queue of a namespace and task that has messages, higher priority first."""
        queues = await self._context.id_cache.matching_queues(caller.environment, namespace, task)
        popped: PopResult | None
        if options.wait_s:
            popped = await self._pop_waiting(caller, queues, group, options, _deadline(options))
        else:
            popped = await self._pop_first(caller, queues, group, options)
        self.count_request()
        return popped or _empty("", group)

    def start(
        self, caller: Caller, queue: str, group: str, options: PopOptions, receiver: Receiver[list[PopRow]]
    ) -> PendingPop | None:
        """Queue a pop for its batch, if its group is cached and it names no partition.

        The receiver gets its rows, for `finish`. Returns None if the pop needs more than a batch; the caller
        then uses `pop`, also to wait when there are no messages.
        """
        ids = self._context.id_cache.cached_group(caller.environment, queue, group)
        if ids is None or options.partition is not None:
            return None
        pending = self._prepare(caller, ids, None, options)
        self.batcher.put(pending.key, pending.request, receiver)
        return pending

    def finish(
        self,
        caller: Caller,
        queue: str,
        group: str,
        options: PopOptions,
        pending: PendingPop,
        rows: list[PopRow],
    ) -> PopResult:
        """Convert the rows into the result and count its messages.

        Raises KeyMissing if a payload cannot be decrypted, and Unauthorized if the caller's token has ended,
        unless the messages are acked already. The pop must then be abandoned.
        """
        if not caller.active and not options.auto_ack:
            raise token_ended()
        read_messages = pop_rows.read_single if pending.key.is_single else pop_rows.read_batch
        messages = read_messages(rows, self._context.cipher)
        self._count(caller.environment, queue, group, pending.ids, rows, messages, options.auto_ack)
        if not messages:
            return PopResult(queue, "", group, messages, 0)
        lease = "" if options.auto_ack else f"{pending.ids.group_id}.{pending.request.lease_id}"
        partition_count = 1 if len(messages) == 1 else len({m.partition_id for m in messages})
        return PopResult(queue, lease, group, messages, partition_count)

    def abandon(self, pending: PendingPop, rows: list[PopRow]) -> None:
        """Release the lease of a pop whose caller does not get its messages."""
        self.batcher.abandon(pending.key, pending.request, rows)

    def count_request(self) -> None:
        """Count a pop that was answered, with messages or without."""
        self._context.metrics.requests.pop += 1

    async def release_lease(self, scope: Scope, popped: PopResult) -> None:
        """Release the lease of a pop whose client disconnected. Auto-acked messages cannot be returned."""
        lease = MessageLease.parse(popped.lease)
        if lease is not None:
            partition_ids = {message.partition_id for message in popped.messages}
            await log.release_lease(self._context.database, lease.group_id, lease.lease_id, partition_ids)
            ids = await self._context.id_cache.resolve_group(scope, popped.queue, popped.group)
            if ids is not None:
                self._context.wakeups.notify(ids.queue_id, len(partition_ids), partition_ids)

    def end_inactive_callers(self) -> None:
        """End the waiting pops of callers that are not active any more."""
        self._context.wakeups.parked_pops.wake_inactive()

    async def release_leases_of_tokens(self, token_numbers: Collection[int]) -> None:
        """Release the leases that were taken with access tokens, because the tokens have ended."""
        released = await log.release_leases_of_tokens(self._context.database, token_numbers)
        for queue_id, partition_ids in released.items():
            self._context.wakeups.notify(queue_id, len(partition_ids), partition_ids)

    async def _pop_or_wait(self, caller: Caller, queue: str, group: str, options: PopOptions) -> PopResult:
        """Wait for a message, and before that for the queue and the partition if they do not exist."""
        deadline = _deadline(options)
        popped: PopResult | None = None
        while popped is None:
            target = await self._resolve(caller.environment, queue, group, options)
            if target is None:
                target = await self._wait_until_created(caller, queue, group, options, deadline)
            if target is None:
                return _empty(queue, group)
            queues = {target.ids.queue_id: queue}
            popped = await self._pop_waiting(caller, queues, group, options, deadline, target.partition_id)
        return popped

    async def _wait_until_created(
        self, caller: Caller, queue: str, group: str, options: PopOptions, deadline: float
    ) -> _PopTarget | None:
        """Wait until the queue and the partition of a pop exist; None if they do not at the deadline."""
        parked_pops, scope = self._context.wakeups.parked_pops, caller.environment
        watched_name = name_id(scope, queue, options.partition)
        with parked_pops.watch([watched_name], group, caller=caller) as watch:
            # Resolved once more first: it may have been created before the watch began.
            while (target := await self._resolve(scope, queue, group, options)) is None:
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0 or not await parked_pops.park(watch, remaining_s):
                    break
                if not caller.active:
                    raise token_ended()
        return target

    async def _pop_waiting(
        self,
        caller: Caller,
        queues: dict[int, str],
        group: str,
        options: PopOptions,
        deadline: float,
        partition_id: int | None = None,
    ) -> PopResult | None:
        """Wait for a message of existing queues, or of one partition; None if a queue was deleted."""
        parked_pops = self._context.wakeups.parked_pops
        with parked_pops.watch(queues, group, partition_id, caller) as watch:
            woken = False
            while True:
                try:
                    if not caller.active:
                        raise token_ended()
                    popped = await self._pop_first(caller, queues, group, options)
                except BaseException:
                    if woken:
                        parked_pops.wake_next(watch)  # the message that woke this pop is still there
                    raise
                if popped.messages:
                    parked_pops.wake_next(watch)  # there may be more messages than this pop took
                    return popped
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0:
                    return popped
                if not watch.signalled and not await self._set_timers(caller.environment, queues, watch):
                    return None
                woken = await parked_pops.park(watch, remaining_s)
                if not woken:
                    return popped

    async def _set_timers(self, scope: Scope, queues: dict[int, str], watch: PopWatch) -> bool:
        """Schedule a wake-up for when the next lease or delay ends.

        Returns False if a queue was deleted: nothing would wake a pop under its old id.
        """
        for queue_id, queue in queues.items():
            ids = await self._context.id_cache.resolve_group(scope, queue, watch.group)
            if ids is None or ids.queue_id != queue_id:
                return False
            delay_s = await log.seconds_until_ready(self._context.database, ids.group_id, watch.partition_id)
            if delay_s is not None:
                # A message that is already ready is locked by another transaction: retry shortly.
                delay_s = max(delay_s, LOCKED_RETRY_S)
                self._context.wakeups.parked_pops.wake_in(queue_id, watch.group, delay_s, watch.partition_id)
        return True

    async def _resolve(self, scope: Scope, queue: str, group: str, options: PopOptions) -> _PopTarget | None:
        """Return the ids that a pop needs; None if its queue or its partition does not exist."""
        id_cache = self._context.id_cache
        ids = await id_cache.resolve_group(scope, queue, group, options.subscription)
        if ids is None or options.partition is None:
            return ids and _PopTarget(ids, None)
        partition_id = await id_cache.find_partition(scope, queue, options.partition, ids)
        return None if partition_id is None else _PopTarget(ids, partition_id)

    async def _pop_first(
        self, caller: Caller, queues: dict[int, str], group: str, options: PopOptions
    ) -> PopResult:
        popped = _empty("", group)
        for queue in queues.values():
            popped = await self._pop_once(caller, queue, group, options)
            if popped.messages:
                break
        return popped

    async def _pop_once(self, caller: Caller, queue: str, group: str, options: PopOptions) -> PopResult:
        scope = caller.environment
        for _ in range(RESOLVE_ATTEMPTS):
            target = await self._resolve(scope, queue, group, options)
            if target is None:
                break
            pending = self._prepare(caller, *target, options)
            try:
                rows = await self.batcher.submit(pending.key, pending.request)
            except GroupDeleted:
                self._context.id_cache.invalidate_queue(scope, queue)
                continue
            try:
                return self.finish(caller, queue, group, options, pending, rows)
            except (KeyMissing, Unauthorized):
                await self._release_abandoned(pending.key, pending.request, rows)
                raise
        return _empty(queue, group)

    def _prepare(
        self, caller: Caller, ids: GroupId, partition_id: int | None, options: PopOptions
    ) -> PendingPop:
        lease_ms = ids.lease_ms or self._lease_ms
        width = 1 if partition_id is not None else options.max_partitions
        is_single = options.batch == width == 1 and partition_id is None and not options.auto_ack
        key = _BatchKey(ids.queue_id, ids.group_id, partition_id, lease_ms, options.auto_ack, is_single)
        return PendingPop(ids, key, PopRequest(new_lease_id(caller.lease_prefix), options.batch, width))

    def _count(
        self,
        scope: Scope,
        queue: str,
        group: str,
        ids: GroupId,
        rows: list[PopRow],
        messages: list[Message],
        auto_ack: bool,
    ) -> None:
        # Rows of request 0 report messages that outlived their time to live.
        expired = sum([row["leased_to"] - row["leased_from"] for row in rows if not row[0]])
        if expired:
            self._context.metrics.count_expired(scope, ids.queue_id, queue, group, expired)
        if messages:
            now = self._clock()
            waits_ms: list[int] = []
            created_at, wait_ms = 0.0, 0
            for message in messages:
                if message.created_at != created_at:  # messages of one segment share it
                    created_at = message.created_at
                    wait_ms = max(0, int((now - created_at) * 1000))
                waits_ms.append(wait_ms)
            self._context.metrics.count_popped(scope, ids.queue_id, queue, group, waits_ms)
            if auto_ack:
                run_times_ms = [0] * len(messages)
                self._context.metrics.count_acked(
                    scope, ids.queue_id, queue, group, "completed", run_times_ms
                )

    async def _execute(self, key: Hashable, requests: Sequence[PopRequest]) -> list[list[PopRow]]:
        assert isinstance(key, _BatchKey)
        database = self._context.database
        if key.is_single:
            lease_ids = [request.lease_id for request in requests]
            rows = await log.pop_single(database, key.group_id, lease_ids, lease_ms=key.lease_ms)
        else:
            rows = await log.pop(
                database,
                key.group_id,
                requests,
                partition_id=key.partition_id,
                lease_ms=key.lease_ms,
                auto_ack=key.auto_ack,
                max_bytes=self._context.max_response_bytes,
            )
        rows_by_request: list[list[PopRow]] = [[] for _ in requests]
        for row in rows:
            # Rows of expired messages (request 0) belong to no request; the first one counts them.
            rows_by_request[max(row[0] - 1, 0)].append(row)
        return rows_by_request

    async def _release_abandoned(self, key: Hashable, request: PopRequest, rows: list[PopRow]) -> None:
        """Release at once the lease of a pop whose caller is gone."""
        assert isinstance(key, _BatchKey)
        partition_ids = {row["partition_id"] for row in rows if row["request"]}
        if partition_ids and not key.auto_ack:
            await log.release_lease(self._context.database, key.group_id, request.lease_id, partition_ids)
            self._context.wakeups.notify(key.queue_id, len(partition_ids), partition_ids)


def _deadline(options: PopOptions) -> float:
    """Return the time of the monotonic clock at which a pop stops waiting."""
    return time.monotonic() + options.wait_s


def _empty(queue: str, group: str) -> PopResult:
    return PopResult(queue, "", group, [], 0)
