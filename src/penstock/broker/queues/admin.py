"""Configure, pause and delete queues, and move and delete their consumer groups.

Every change takes effect in this broker at once and in other brokers within moments, through notifications.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from penstock.broker.context import BrokerContext
from penstock.broker.queues.name_registry import RUN_QUEUE_ERROR
from penstock.broker.queues.queue_options import options_to_columns
from penstock.broker.wakeups import ALL_POPS
from penstock.caller import CallerQuotas
from penstock.durable.catalog import ColumnValue, ConfiguredQueue
from penstock.durable.consumer_groups import GroupSubscription, SeekResult
from penstock.durable.log import PartitionName
from penstock.durable.notifications import NotificationBus
from penstock.errors import UnknownGroup, UnknownPartition, WrongState
from penstock.model import DEFAULT_PARTITION, Scope


class QueueAdmin:
    """Configure, pause and delete queues."""

    def __init__(self, context: BrokerContext, notifications: NotificationBus) -> None:
        self._context = context
        self._notifications = notifications

    async def configure(
        self,
        scope: Scope,
        queue: str,
        queue_options: Mapping[str, object],
        *,
        namespace: str | None = None,
        task: str | None = None,
        quotas: CallerQuotas | None = None,
    ) -> ConfiguredQueue:
        """Set options of a queue, all or none. Options that are left out keep their value.

        A queue that does not exist is created with the defaults. The new options also apply to messages that
        already wait. Raises InvalidRequest with the invalid option, WrongState for encryption without a key
        or with index keys and for the name of a run queue, and QuotaExceeded.
        """
        changes: dict[str, ColumnValue] = {**options_to_columns(queue_options)}
        if await self._context.id_cache.is_run_queue(scope, queue):
            raise WrongState(RUN_QUEUE_ERROR, queue=queue)
        if changes.get("encrypted") and not self._context.cipher.can_encrypt:
            raise WrongState(
                "encryptionEnabled needs a key, and this broker has none. Set PENSTOCK_ENCRYPTION_KEYS.",
                field="options.encryptionEnabled",
            )
        if namespace is not None:
            changes["namespace"] = namespace
        if task is not None:
            changes["task"] = task
        await self._create_within_quotas(scope, queue, quotas)
        configured = await self._context.store.catalog.configure(scope, queue, changes)
        self._publish_change(scope, configured.queue_id, queue)
        self._context.wakeups.notify_created(scope, [PartitionName(queue, DEFAULT_PARTITION)])
        return configured

    async def _create_within_quotas(self, scope: Scope, queue: str, quotas: CallerQuotas | None) -> None:
        """Create a queue that does not exist, if quotas limit queues or partitions."""
        limits = None if quotas is None else quotas.creation_limits
        if limits is None or await self._context.store.catalog.has_queue(scope, queue):
            return
        name = PartitionName(queue, DEFAULT_PARTITION)
        if name not in await self._context.id_cache.resolve_partitions(scope, [name], limits):
            await self._context.id_cache.check_quotas(scope, [name], quotas)

    async def delete(self, scope: Scope, queue: str) -> bool:
        """Delete a queue with all its data; return False if it does not exist. Wakes its parked pops."""
        row = await self._context.store.catalog.find_queue(scope, queue)
        if row is None:
            return False
        groups = await self._context.store.consumer_groups.ids_by_name(row.id)
        existed = await self._context.store.catalog.delete_queue(row.id)
        self._publish_change(scope, row.id, queue)
        self._context.metrics.emit_deleted(scope, row.id, queue, ["", *groups])
        return existed

    async def pause(self, scope: Scope, queue: str) -> bool:
        """Hand out no more messages of a queue; return False if it does not exist.

        Pops return nothing; waiting ones wait for `resume`. Pushes are accepted, and leases stay in force.
        """
        return await self._context.store.catalog.set_paused(scope, queue, True) is not None

    async def resume(self, scope: Scope, queue: str) -> bool:
        """Hand out messages of a paused queue again; return False if it does not exist. Wakes parked pops."""
        queue_id = await self._context.store.catalog.set_paused(scope, queue, False)
        if queue_id is not None:
            self._context.wakeups.notify(queue_id, ALL_POPS)
        return queue_id is not None

    async def purge(self, scope: Scope, queue: str) -> tuple[int, dict[str, int]] | None:
        """Drop all messages of a queue; None if it does not exist. Its leases end, its dead letters stay.

        Returns how many messages were dropped that some group had not finished, and for each group how many
        it had not finished. Metrics count these as expired.
        """
        row = await self._context.store.catalog.find_queue(scope, queue)
        if row is None:
            return None
        group_ids = await self._context.store.consumer_groups.ids_by_name(row.id)
        purged = await self._context.store.catalog.purge(row.id)
        unfinished = {name: purged.group_messages[group_id] for name, group_id in group_ids.items()}
        for name, messages in (unfinished or {"": purged.group_messages[0]}).items():
            if messages:
                self._context.metrics.count_expired(scope, row.id, queue, name, messages)
        self._context.metrics.mark_changed(scope, row.id, queue)
        self._context.wakeups.notify(row.id, ALL_POPS)
        return purged.messages, unfinished

    def _publish_change(self, scope: Scope, queue_id: int, queue: str) -> None:
        self._context.id_cache.invalidate_queue(scope, queue)
        self._notifications.publish_change(queue_id)
        self._context.wakeups.notify(queue_id, ALL_POPS)


class GroupAdmin:
    """Move and delete consumer groups.

    Every change ends the leases it affects: a consumer that held one gets LeaseLost for its acks, which
    change nothing.
    """

    def __init__(self, context: BrokerContext, notifications: NotificationBus) -> None:
        self._context = context
        self._notifications = notifications

    async def seek(
        self, scope: Scope, group: str, queue: str, target: str, partition: str | None = None
    ) -> SeekResult:
        """Move a group in a queue, or in one of its partitions: to `all`, `new` or an ISO 8601 time."""
        [row] = await self._find(scope, group, queue)
        partition_id = None
        if partition is not None:
            partition_id = await self._context.store.messages.find_partition_id(row.queue_id, partition)
            if partition_id is None:
                raise UnknownPartition(
                    f"Queue {queue!r} has no partition {partition!r}. A push to the partition creates it.",
                    partition=partition,
                )
        return await self._move(scope, row, target, partition_id)

    async def subscribe(self, scope: Scope, group: str, start: datetime) -> list[str]:
        """Move a group to a start time in every queue it consumes and save that time; return the queues."""
        rows = await self._find(scope, group)
        for row in rows:
            await self._context.store.consumer_groups.set_subscription(row.group_id, start.isoformat())
            await self._move(scope, row, start.isoformat())
        return [row.queue for row in rows]

    async def reset(self, scope: Scope, group: str, queue: str | None = None) -> int:
        """Move a group back to its start in every queue, or in one; return the number of partitions."""
        partitions = 0
        for row in await self._find(scope, group, queue):
            start = row.subscription
            if start == "new":
                start = row.created_at.isoformat()
            partitions += (await self._move(scope, row, start)).partitions
        return partitions

    async def delete(self, scope: Scope, group: str, queue: str | None = None) -> int:
        """Delete a group in every queue, or in one; return the number of its positions."""
        positions = 0
        for row in await self._find(scope, group, queue):
            positions += await self._context.store.consumer_groups.delete(row.group_id)
            self._context.id_cache.invalidate_queue(scope, row.queue)
            self._notifications.publish_change(row.queue_id)
            self._context.metrics.mark_changed(scope, row.queue_id, row.queue)
            self._context.metrics.emit_deleted(scope, row.queue_id, row.queue, [group])
        return positions

    async def _find(self, scope: Scope, group: str, queue: str | None = None) -> list[GroupSubscription]:
        rows = await self._context.store.consumer_groups.find_subscriptions(scope, group, queue)
        if not rows:
            raise unknown_group(group, queue)
        return rows

    async def _move(
        self, scope: Scope, row: GroupSubscription, target: str, partition_id: int | None = None
    ) -> SeekResult:
        moved = await self._context.store.consumer_groups.seek(row.group_id, target, partition_id)
        self._context.metrics.mark_changed(scope, row.queue_id, row.queue)
        self._context.wakeups.notify(row.queue_id, ALL_POPS)
        return moved


def unknown_group(group: str, queue: str | None) -> UnknownGroup:
    where = f" in queue {queue!r}" if queue is not None else ""
    return UnknownGroup(
        f"Consumer group {group!r} does not exist{where}. The first pop of a group creates it.", group=group
    )
