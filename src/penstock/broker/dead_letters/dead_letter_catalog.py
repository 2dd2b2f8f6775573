"""Find dead letters of both kinds of queues: messages in PostgreSQL, tasks in Redis."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

from penstock.broker.dead_letters.dead_letter_service import DeadLetterService
from penstock.broker.dead_letters.task_dead_letters import TaskDeadLetters
from penstock.broker.durable_store import DurableStore
from penstock.errors import RedisUnavailable, UnknownTask
from penstock.model import QUEUE_MODE, Scope
from penstock.runqueue.task_model import Task

REDIS_TIMEOUT_S = 1.0
MAX_AGES = 200
"""Run queues whose oldest dead task is read: each needs a round trip to Redis."""


@dataclass(frozen=True, slots=True)
class QueueDeadLetters:
    """The dead letters of one queue and group. `kind` is durable or run."""

    queue: str
    kind: str
    group: str | None
    messages: int
    oldest_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class QueueDeadLettersPage:
    rows: list[QueueDeadLetters]
    total: int
    missing: str | None
    """The queues that could not be read, and why."""


class DeadLetterCatalog:
    def __init__(self, store: DurableStore, dead_letters: DeadLetterService) -> None:
        self._store = store
        self._dead_letters = dead_letters

    @property
    def dead_tasks(self) -> TaskDeadLetters:
        tasks = self._dead_letters.tasks
        assert tasks is not None
        return tasks

    async def count_page(
        self,
        scope: Scope,
        limit: int,
        offset: int,
        *,
        queue: str | None = None,
        group: str | None = None,
        ages: bool = False,
    ) -> QueueDeadLettersPage:
        """A page of counts: durable queues by name, then run queues, which are missing without Redis."""
        counts, run_queue_counts = await asyncio.gather(
            self._store.dead_letters.list_counts(
                scope, queue=queue, group=group, limit=limit, offset=offset, ages=ages
            ),
            self._run_queue_counts(scope, queue, group, ages),
        )
        rows = [
            QueueDeadLetters(row.queue, "durable", row.group_name, row.messages, row.oldest_at)
            for row in counts
        ]
        total = counts[0].total if counts else 0
        if not counts and offset:
            first_page = await self._store.dead_letters.list_counts(scope, queue=queue, group=group, limit=1)
            total = first_page[0].total if first_page else 0
        if run_queue_counts is None:
            return QueueDeadLettersPage(rows, total, "run queues: Redis does not answer")
        start = max(0, offset - total)
        rows += run_queue_counts[start : start + limit - len(rows)]
        return QueueDeadLettersPage(rows, total + len(run_queue_counts), None)

    async def _run_queue_counts(
        self, scope: Scope, queue: str | None, group: str | None, ages: bool
    ) -> list[QueueDeadLetters] | None:
        """Run queues with dead tasks; None if Redis does not respond."""
        if group not in (None, QUEUE_MODE):
            return []
        tasks = self.dead_tasks
        try:
            async with asyncio.timeout(REDIS_TIMEOUT_S):
                states = [state for state in await tasks.list_queues(scope) if queue in (None, state.queue)]
                oldest: list[datetime | None] = [None] * len(states)
                for index, state in enumerate(states[: MAX_AGES if ages else 0]):
                    oldest[index] = await tasks.find_oldest_death(scope, state.queue)
        except (RedisUnavailable, TimeoutError):
            return None
        return [
            QueueDeadLetters(state.queue, "run", QUEUE_MODE, state.dead, oldest_at)
            for state, oldest_at in zip(states, oldest, strict=True)
        ]

    async def has_had_dead_letters(self, scope: Scope, queue: str, group: str) -> bool:
        """Whether the group of a durable queue has or had a dead letter."""
        return bool(await self._store.dead_letters.list_counts(scope, queue=queue, group=group, limit=1))

    async def run_queue_tasks(
        self, scope: Scope, queue: str | None, *, for_change: bool = False
    ) -> TaskDeadLetters | None:
        """The dead tasks of the queue if it is a run queue; None for a durable queue, without asking Redis.

        While Redis is unreachable, any other name reads as no run queue. With `for_change` it raises
        RedisUnavailable instead, so that no change silently affects nothing.
        """
        tasks = self.dead_tasks
        if queue is None:
            return None
        try:
            async with asyncio.timeout(REDIS_TIMEOUT_S):
                return tasks if await tasks.is_run_queue(scope, queue) else None
        except (RedisUnavailable, TimeoutError):
            if for_change:
                raise RedisUnavailable(
                    f"{queue!r} is not a durable queue, and Redis cannot be asked whether it is a run queue. "
                    "Retry when Redis is reachable."
                ) from None
            return None

    async def change_task(self, scope: Scope, kind: str, task_id: str, queue: str | None = None) -> Task:
        """Requeue or purge one dead task; UnknownTask if it is not dead, or not of that queue."""
        task = await self.dead_tasks.get(scope, task_id)
        if queue not in (None, task.queue) or not await self.dead_tasks.change(
            scope, kind, task.queue, [task_id]
        ):
            raise UnknownTask(f"Dead task {task_id} does not exist in this queue.", taskId=task_id)
        return task
