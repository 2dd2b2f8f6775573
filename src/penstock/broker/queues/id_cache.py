"""Names to ids, remembered: what a push or pop needs to know before it can be batched.

Ids never change, so the only stale answer is one that was deleted; whoever finds out calls `forget`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from weakref import WeakValueDictionary

from penstock.broker.queues.name_registry import RUN_QUEUE, QueueNameRegistry
from penstock.durable import catalog, log
from penstock.durable.log import GroupId, PartitionId, PartitionName
from penstock.durable.pool import Database
from penstock.model import Scope

LIMIT = 200_000
"""Names remembered of each kind; past that, start over rather than grow."""


class IdCache:
    def __init__(self, database: Database, names: QueueNameRegistry | None = None) -> None:
        self._database = database
        self._names = names
        self._partitions: dict[tuple[Scope, PartitionName], PartitionId] = {}
        self._groups: dict[tuple[Scope, str, str], GroupId] = {}
        self._asking: WeakValueDictionary[tuple[Scope, str, str], asyncio.Lock] = WeakValueDictionary()
        self._forgotten = 0

    async def partitions(
        self, scope: Scope, names: Iterable[PartitionName]
    ) -> dict[PartitionName, PartitionId]:
        """Ids for the names, made where missing; without those past their queue's number of partitions, and
        those whose queue's name is a run queue's."""
        found: dict[PartitionName, PartitionId] = {}
        missing: list[PartitionName] = []
        for name in names:
            known = self._partitions.get((scope, name))
            if known is None:
                missing.append(name)
            else:
                found[name] = known
        if missing:
            missing = await self._allowed(scope, missing)
            forgotten = self._forgotten
            made = await log.ensure_partitions(self._database, scope, missing)
            if len(self._partitions) + len(made) > LIMIT:
                self._partitions.clear()
            # An answer that is older than what made us forget must not be remembered.
            if forgotten == self._forgotten:
                self._partitions.update({(scope, name): ids for name, ids in made.items()})
            found.update(made)
        return found

    async def group(self, scope: Scope, queue: str, group: str, subscription: str = "all") -> GroupId:
        """The group's ids; the group, starting at `subscription`, and its queue are made where missing."""
        key = (scope, queue, group)
        known = self._groups.get(key)
        if known is not None:
            return known
        # Consumers come in crowds: one asks, the others wait for its answer.
        asking = self._asking.setdefault(key, asyncio.Lock())
        async with asking:
            known = self._groups.get(key)
            if known is None:
                if self._names is not None:
                    await self._names.check_for_messages(scope, queue)
                forgotten = self._forgotten
                known = await log.ensure_group(self._database, scope, queue, group, subscription)
                if len(self._groups) >= LIMIT:
                    self._groups.clear()
                if forgotten == self._forgotten:
                    self._groups[key] = known
        return known

    def known_partitions(
        self, scope: Scope, names: Iterable[PartitionName]
    ) -> dict[PartitionName, PartitionId] | None:
        """Ids for the names if all of them are remembered."""
        found: dict[PartitionName, PartitionId] = {}
        for name in names:
            known = self._partitions.get((scope, name))
            if known is None:
                return None
            found[name] = known
        return found

    def known_group(self, scope: Scope, queue: str, group: str) -> GroupId | None:
        return self._groups.get((scope, queue, group))

    async def is_run_queue(self, scope: Scope, queue: str) -> bool:
        return self._names is not None and await self._names.is_run_queue(scope, queue)

    async def why_not(self, scope: Scope, name: PartitionName) -> str:
        """Why a partition could not be made."""
        if await self.is_run_queue(scope, name.queue):
            return RUN_QUEUE
        return "the queue has all the partitions it may have"

    async def _allowed(self, scope: Scope, names: list[PartitionName]) -> list[PartitionName]:
        taken = {queue for queue in {n.queue for n in names} if await self.is_run_queue(scope, queue)}
        return [name for name in names if name.queue not in taken]

    def invalidate_queue(self, scope: Scope, queue: str) -> None:
        """Drop what is remembered of a queue, because part of it turned out to be gone."""
        self._forgotten += 1
        for partition in [k for k in self._partitions if k[0] == scope and k[1].queue == queue]:
            del self._partitions[partition]
        for group in [k for k in self._groups if k[0] == scope and k[1] == queue]:
            del self._groups[group]

    def invalidate_queue_id(self, queue_id: int) -> None:
        """The same by id, because the queue's options changed somewhere."""
        self._forgotten += 1
        for partition in [k for k, ids in self._partitions.items() if ids.queue_id == queue_id]:
            del self._partitions[partition]
        for group in [k for k, ids in self._groups.items() if ids.queue_id == queue_id]:
            del self._groups[group]

    def invalidate_all(self) -> None:
        """Start over, because word of a change may have been missed."""
        self._forgotten += 1
        self._partitions.clear()
        self._groups.clear()

    async def matching(self, scope: Scope, namespace: str | None, task: str | None) -> dict[int, str]:
        """The queues of a namespace and task, by id: higher priority first, then by name."""
        rows = await catalog.matching_queues(self._database, scope, namespace, task)
        return {row["id"]: row["name"] for row in rows}
