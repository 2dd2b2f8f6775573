"""Cache the database ids of queues, partitions and groups, and the names that acks are counted under.

`IdCache` maps names to ids, which a push or pop needs before it can join a batch. Ids never change, so an
entry can only be stale because its queue or group was deleted; the caller that finds out invalidates the
queue. A queue that does not exist is never cached.

`AckLabelCache` maps ids back to names, so that an ack does not read them from the database every time. An id
is never reused and names never change: an entry may describe a deleted queue, but it is never wrong. Neither
cache holds leases.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple
from weakref import WeakValueDictionary

from penstock.batching import Batcher
from penstock.broker.queues.name_registry import RUN_QUEUE_ERROR, QueueNameRegistry
from penstock.caller import CallerQuotas
from penstock.durable import log
from penstock.durable.catalog import QueueCatalog
from penstock.durable.log import Ack, AckReceipt, GroupId, LeaseAcks, PartitionId, PartitionName
from penstock.durable.pool import Database
from penstock.durable.stored_messages import StoredMessages
from penstock.model import CreationLimits, Scope

MAX_ENTRIES = 200_000
"""Entries per cache. A full cache is cleared, so that it cannot grow without bound."""

EARLY_GROUP_S = 600.0
"""How long the broker remembers that a group popped from a queue that did not exist: as long as two of the
longest waits of a pop."""


class _CreationKey(NamedTuple):
    """Requests with the same key create their partitions in one call."""

    scope: Scope
    limits: CreationLimits | None


class IdCache:
    """Resolve names to ids. A push creates its queue and partitions; a pop creates its group only."""

    def __init__(self, database: Database, names: QueueNameRegistry | None = None) -> None:
        self._database = database
        self._catalog = QueueCatalog(database)
        self._messages = StoredMessages(database)
        self._names = names
        self._partitions: dict[tuple[Scope, PartitionName], PartitionId] = {}
        self._groups: dict[tuple[Scope, str, str], GroupId] = {}
        self._lookup_locks: WeakValueDictionary[tuple[Scope, str, str], asyncio.Lock] = WeakValueDictionary()
        self._early_groups: dict[tuple[Scope, str, str], float] = {}
        """Groups that popped before their queue existed, and until when that is remembered."""
        self._invalidations = 0
        self.notify_created: Callable[[Scope, Iterable[PartitionName]], None] = lambda scope, names: None
        """Called with partitions that may have been created just now."""
        self.batcher: Batcher[list[PartitionName], dict[PartitionName, PartitionId]] = Batcher(
            self._ensure_partitions
        )
        """Creates the missing partitions of concurrent requests in one call per environment."""

    async def resolve_partitions(
        self, scope: Scope, names: Iterable[PartitionName], limits: CreationLimits | None = None
    ) -> dict[PartitionName, PartitionId]:
        """Return the ids of the partitions, creating missing ones.

        The result leaves out partitions beyond their queue's maxPartitions or the limits, and those of a run
        queue's name.
        """
        resolved: dict[PartitionName, PartitionId] = {}
        missing: list[PartitionName] = []
        for name in names:
            ids = self._partitions.get((scope, name))
            if ids is None:
                missing.append(name)
            else:
                resolved[name] = ids
        if missing:
            missing = await self._without_run_queues(scope, missing)
        if missing:
            key = _CreationKey(scope, limits)
            resolved.update(await self.batcher.submit(key, missing, items=len(missing)))
        return resolved

    async def _ensure_partitions(
        self, key: Hashable, requests: Sequence[list[PartitionName]]
    ) -> list[dict[PartitionName, PartitionId]]:
        assert isinstance(key, _CreationKey)
        scope = key.scope
        names = sorted({name for request in requests for name in request})
        invalidations = self._invalidations
        created = await log.ensure_partitions(self._database, scope, names, key.limits)
        if len(self._partitions) + len(created) > MAX_ENTRIES:
            self._partitions.clear()
        # Rows read before an invalidation may be the stale ones: do not cache them.
        if invalidations == self._invalidations:
            self._partitions.update({(scope, name): ids for name, ids in created.items()})
        self.notify_created(scope, created)
        return [{name: created[name] for name in request if name in created} for request in requests]

    async def add_partition(self, scope: Scope, name: PartitionName) -> PartitionId:
        """Return the ids of a partition and create it if it is missing, even past its queue's limit."""
        ids = await log.add_partition(self._database, scope, name)
        self.notify_created(scope, [name])
        return ids

    async def find_partition(self, scope: Scope, queue: str, partition: str, group: GroupId) -> int | None:
        """Return the id of a partition of the group's queue; None if the partition does not exist."""
        key = (scope, PartitionName(queue, partition))
        ids = self._partitions.get(key)
        if ids is not None and ids.queue_id == group.queue_id:
            return ids.partition_id
        invalidations = self._invalidations
        partition_id = await self._messages.find_partition_id(group.queue_id, partition)
        if partition_id is not None and invalidations == self._invalidations:
            if len(self._partitions) >= MAX_ENTRIES:
                self._partitions.clear()
            self._partitions[key] = PartitionId(group.queue_id, partition_id, group.encrypted)
        return partition_id

    async def resolve_group(
        self, scope: Scope, queue: str, group: str, subscription: str = "all"
    ) -> GroupId | None:
        """Return the group's ids; None if the queue does not exist. A missing group is created.

        It starts at `subscription`; with `new` it starts at the queue's first message if it popped before the
        queue existed: every message is new to it. Raises WrongState for the name of a run queue.
        """
        key = (scope, queue, group)
        ids = self._groups.get(key)
        if ids is not None:
            return ids
        # Many consumers of a group start at once: one reads the ids, the others wait for it.
        lookup_lock = self._lookup_locks.setdefault(key, asyncio.Lock())
        async with lookup_lock:
            ids = self._groups.get(key)
            if ids is None:
                ids = await self._ensure_group(key, subscription)
        return ids

    async def _ensure_group(self, key: tuple[Scope, str, str], subscription: str) -> GroupId | None:
        scope, queue, group = key
        if subscription == "new" and time.monotonic() < self._early_groups.get(key, 0.0):
            subscription = "all"
        invalidations = self._invalidations
        ids = await log.ensure_group(self._database, scope, queue, group, subscription)
        if ids is None:
            if self._names is not None:
                await self._names.ensure_not_run_queue(scope, queue)
            if len(self._early_groups) >= MAX_ENTRIES:
                self._early_groups.clear()
            self._early_groups[key] = time.monotonic() + EARLY_GROUP_S
            return None
        self._early_groups.pop(key, None)
        if len(self._groups) >= MAX_ENTRIES:
            self._groups.clear()
        if invalidations == self._invalidations:
            self._groups[key] = ids
        return ids

    def cached_partitions(
        self, scope: Scope, names: Iterable[PartitionName]
    ) -> dict[PartitionName, PartitionId] | None:
        """Return the ids of the partitions if all of them are cached."""
        cached: dict[PartitionName, PartitionId] = {}
        for name in names:
            ids = self._partitions.get((scope, name))
            if ids is None:
                return None
            cached[name] = ids
        return cached

    def cached_group(self, scope: Scope, queue: str, group: str) -> GroupId | None:
        return self._groups.get((scope, queue, group))

    async def is_run_queue(self, scope: Scope, queue: str) -> bool:
        return self._names is not None and await self._names.is_run_queue(scope, queue)

    async def check_quotas(
        self, scope: Scope, names: Iterable[PartitionName], quotas: CallerQuotas | None
    ) -> None:
        """Raise QuotaExceeded if a quota does not allow to create all of these partitions."""
        limits = None if quotas is None else quotas.creation_limits
        if quotas is None or limits is None:
            return
        exceeded = await log.find_exceeded_quota(self._database, scope, names, limits)
        if exceeded is not None:
            raise quotas.creation_refusal(exceeded)

    async def refusal_reason(self, scope: Scope, name: PartitionName) -> str:
        """Return the reason why a partition was not created, if it was no quota."""
        if await self.is_run_queue(scope, name.queue):
            return RUN_QUEUE_ERROR
        return "The queue has reached its maxPartitions. Use an existing partition or raise the limit."

    async def _without_run_queues(self, scope: Scope, names: list[PartitionName]) -> list[PartitionName]:
        run_queues = {queue for queue in {n.queue for n in names} if await self.is_run_queue(scope, queue)}
        return [name for name in names if name.queue not in run_queues]

    def invalidate_queue(self, scope: Scope, queue: str) -> None:
        """Drop all ids of a queue, because one of them turned out to be deleted."""
        self._invalidations += 1
        for partition in [k for k in self._partitions if k[0] == scope and k[1].queue == queue]:
            del self._partitions[partition]
        for group in [k for k in self._groups if k[0] == scope and k[1] == queue]:
            del self._groups[group]

    def invalidate_queue_id(self, queue_id: int) -> None:
        """Drop all ids of a queue, because another broker changed its options."""
        self._invalidations += 1
        for partition in [k for k, ids in self._partitions.items() if ids.queue_id == queue_id]:
            del self._partitions[partition]
        for group in [k for k, ids in self._groups.items() if ids.queue_id == queue_id]:
            del self._groups[group]

    def invalidate_all(self) -> None:
        """Drop everything, because notifications of changes may have been missed."""
        self._invalidations += 1
        self._partitions.clear()
        self._groups.clear()

    async def matching_queues(self, scope: Scope, namespace: str | None, task: str | None) -> dict[int, str]:
        """Return the queues of a namespace and task by id, higher priority first, then by name."""
        rows = await self._catalog.find_matching_queues(scope, namespace, task)
        return {row.id: row.name for row in rows}


class AckLabels(NamedTuple):
    """The names that an ack is counted under."""

    queue_id: int
    queue: str
    partition: str
    group: str


class AckLabelCache:
    """Labels by partition and group id, learned from the results of earlier acks."""

    def __init__(self) -> None:
        self._labels: dict[tuple[int, int], AckLabels] = {}

    def find(self, leases: Sequence[LeaseAcks]) -> list[AckLabels] | None:
        """Return the labels of the acks of each lease if all of them are cached."""
        labels = self._labels
        try:
            return [labels[lease.partition_id, lease.group_id] for lease in leases]
        except KeyError:
            return None

    def add(self, acks: Sequence[Ack], receipts: Sequence[AckReceipt]) -> None:
        """Cache the labels that the database returned for these acks."""
        if len(self._labels) + len(acks) > MAX_ENTRIES:
            self._labels.clear()
        for ack, receipt in zip(acks, receipts, strict=True):
            _, queue_id, queue, partition, group, *_ = receipt
            if queue_id is not None and queue is not None and partition is not None and group is not None:
                self._labels[ack.partition_id, ack.group_id] = AckLabels(queue_id, queue, partition, group)
