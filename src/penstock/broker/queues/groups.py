"""Moving and deleting consumer groups."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from penstock.broker.context import BrokerContext
from penstock.broker.queues.admin import EVERYONE
from penstock.durable import consumer_groups, stored_messages
from penstock.durable.consumer_groups import Moved
from penstock.durable.notifications import News
from penstock.errors import UnknownGroup, UnknownPartition
from penstock.model import Scope


class GroupAdmin:
    """Everything here ends the leases it touches: who held one gets a clear error and changes nothing."""

    def __init__(self, context: BrokerContext, news: News) -> None:
        self._context = context
        self._news = news

    async def seek(
        self, scope: Scope, group: str, queue: str, target: str, partition: str | None = None
    ) -> Moved:
        """Move a group in a queue, or in one partition of it: to `all`, `new` or a moment in ISO 8601."""
        [row] = await self._found(scope, group, queue)
        partition_id = None
        if partition is not None:
            partition_id = await stored_messages.partition_id(self._context.database, row["queue_id"], partition)
            if partition_id is None:
                raise UnknownPartition(f"queue {queue!r} has no partition {partition!r}", partition=partition)
        return await self._move(scope, row, target, partition_id)

    async def subscribe(self, scope: Scope, group: str, moment: datetime) -> list[str]:
        """Let a group start at a moment in every queue it consumes, from now on; the queues."""
        rows = await self._found(scope, group)
        for row in rows:
            await consumer_groups.subscribe(self._context.database, row["id"], moment.isoformat())
            await self._move(scope, row, moment.isoformat())
        return [row["queue"] for row in rows]

    async def start_over(self, scope: Scope, group: str, queue: str | None = None) -> int:
        """Forget how far a group has come, but not where it started; in how many partitions."""
        partitions = 0
        for row in await self._found(scope, group, queue):
            start = row["subscription"]
            if start == "new":
                start = row["created_at"].isoformat()
            partitions += (await self._move(scope, row, start)).partitions
        return partitions

    async def delete(self, scope: Scope, group: str, queue: str | None = None) -> int:
        """Delete a group in every queue, or in one; in how many partitions it had a position."""
        partitions = 0
        for row in await self._found(scope, group, queue):
            partitions += await consumer_groups.delete_group(self._context.database, row["id"])
            self._context.id_cache.invalidate_queue(scope, row["queue"])
            self._news.tell_changed(row["queue_id"])
            self._context.metrics.touched(scope, row["queue_id"], row["queue"])
            self._context.metrics.gone(scope, row["queue_id"], row["queue"], [group])
        return partitions

    async def _found(self, scope: Scope, group: str, queue: str | None = None) -> list[Any]:
        rows = await consumer_groups.find_groups(self._context.database, scope, group, queue)
        if not rows:
            where = f" of queue {queue!r}" if queue is not None else ""
            raise UnknownGroup(
                f"there is no consumer group {group!r}{where}; it is made by its first pop", group=group
            )
        return rows

    async def _move(self, scope: Scope, row: Any, target: str, partition_id: int | None = None) -> Moved:
        moved = await consumer_groups.seek(self._context.database, row["id"], target, partition_id)
        self._context.metrics.touched(scope, row["queue_id"], row["queue"])
        self._context.wakeups.notify(row["queue_id"], EVERYONE)
        return moved
