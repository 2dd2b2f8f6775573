"""Jobs that delete messages of durable queues, or move them to the dead letters."""

from __future__ import annotations

import uuid

from penstock.broker.context import BrokerContext
from penstock.broker.dead_letters.dead_letter_source import DeadLetterTotal
from penstock.durable.dead_letters.jobs import BulkChange, DeadLetterJob
from penstock.errors import InvalidRequest, UnknownGroup, UnknownQueue
from penstock.model import Scope


class MessageJobs:
    """Jobs over the messages of one durable queue. A message under a live lease is skipped and counted."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._jobs = context.store.jobs

    async def preview(self, scope: Scope, change: BulkChange) -> DeadLetterTotal:
        """Return how many messages a job would change or skip. Raises as `create` does."""
        await self._check(scope, change)
        job = await self._jobs.create_for_messages(scope, change, dry_run=True)
        return DeadLetterTotal(job.total, job.total_is_exact)

    async def create(self, scope: Scope, change: BulkChange) -> DeadLetterJob:
        """Create a job. Raises UnknownQueue, UnknownGroup, or InvalidRequest without a group."""
        await self._check(scope, change)
        return await self._jobs.create_for_messages(scope, change)

    async def _check(self, scope: Scope, change: BulkChange) -> None:
        if change.task_state is not None:
            raise InvalidRequest("Messages have no task state. Omit `taskState`.", field="taskState")
        if change.kind == "dead_letter" and change.group is None:
            raise InvalidRequest(
                "Name the group to whose dead letters the messages go in consumerGroup.",
                field="consumerGroup",
            )
        row = await self._context.store.catalog.find_queue(scope, change.queue)
        if row is None:
            raise UnknownQueue(f"Durable queue {change.queue!r} does not exist.", queue=change.queue)
        group_ids = await self._context.store.consumer_groups.ids_by_name(row.id)
        if change.group is not None and change.group not in group_ids:
            raise UnknownGroup(
                f"Queue {change.queue!r} has no consumer group {change.group!r}.", group=change.group
            )

    async def advance(
        self, job: DeadLetterJob, owner: uuid.UUID, limit: int, max_scanned: int
    ) -> DeadLetterJob:
        """Execute one chunk and return the job afterwards."""
        advanced = await self._jobs.advance_for_messages(job.id, owner, limit, max_scanned)
        if advanced.changed and advanced.queue_id is not None:
            await self._notify_changed(job, advanced.queue_id, advanced.changed)
        return advanced.job

    async def _notify_changed(self, job: DeadLetterJob, queue_id: int, changed: int) -> None:
        assert job.queue is not None
        scope = await self._jobs.get_scope(job.id)
        if job.kind == "dead_letter":
            assert job.group_name is not None
            self._context.metrics.count_dead(scope, queue_id, job.queue, job.group_name, changed)
        else:
            self._context.metrics.mark_changed(scope, queue_id, job.queue)
        self._context.wakeups.notify(queue_id)
