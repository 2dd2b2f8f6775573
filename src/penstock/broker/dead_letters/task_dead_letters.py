"""Dead tasks of run queues, with the operations of dead letters.

The tasks are in Redis, which keeps their number and order of death but does not index errors. A search for a
text or an error group therefore scans tasks. The progress of a job is in PostgreSQL and its tasks are in
Redis, so a process that dies in between leaves a chunk that is executed and not counted. No task is changed
twice: a redriven task is not dead, and a task that died again after the job was created is not selected.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from penstock.clock import to_utc
from penstock.durable.catalog import QueueCatalog
from penstock.durable.dead_letters.dead_letter_store import DeadLetterFilter, DeadLetterStore
from penstock.durable.dead_letters.jobs import DeadLetterJob, JobStore
from penstock.durable.pool import Database
from penstock.errors import InvalidRequest, UnknownQueue, UnknownTask
from penstock.model import QUEUE_MODE, Scope
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import QueueState, Task, TaskChange, TaskState

PAGE_SIZE = 500
MAX_SCANNED = 10_000
"""Tasks that one search for a text or an error group scans."""


@dataclass(slots=True)
class TaskErrorGroup:
    """Dead tasks with the same error pattern."""

    key: uuid.UUID
    pattern: str
    example: str
    tasks: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None
    hours: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeadTaskMatches:
    """Matching dead tasks, the earliest death first. `next` is the cursor after the scanned tasks; None at
    the end."""

    tasks: list[Task]
    next: str | None
    scanned: int


class TaskDeadLetters:
    """Finds and changes dead tasks, and executes jobs on them."""

    def __init__(self, database: Database, run_queues: RunQueues) -> None:
        self._catalog = QueueCatalog(database)
        self._dead_letters = DeadLetterStore(database)
        self._jobs = JobStore(database)
        self._run_queues = run_queues

    async def is_run_queue(self, scope: Scope, queue: str) -> bool:
        """Return whether the name is that of a run queue. A durable queue needs no call to Redis."""
        if await self._catalog.has_queue(scope, queue):
            return False
        return await self._run_queues.has_queue(scope, queue)

    async def list_queues(self, scope: Scope) -> list[QueueState]:
        """Return the run queues that have dead tasks, sorted by name."""
        states = [state for state in await self._run_queues.list_queues(scope) if state.dead]
        return sorted(states, key=lambda state: state.queue)

    async def find_oldest_death(self, scope: Scope, queue: str) -> datetime | None:
        """Return when the first dead task of a run queue died; None without dead tasks or queue."""
        try:
            page = await self._run_queues.list_dead_tasks(scope, queue, limit=1)
        except UnknownQueue:
            return None
        return time_of_death(page.tasks[0]) if page.tasks else None

    async def search(
        self,
        scope: Scope,
        selection: DeadLetterFilter,
        *,
        limit: int,
        after: str | None = None,
        max_scanned: int = MAX_SCANNED,
    ) -> DeadTaskMatches:
        """Return the matching tasks of the run queue `selection.queue`."""
        check_task_filter(selection)
        assert selection.queue is not None
        matches: list[Task] = []
        scanned = 0
        while True:
            size = min(PAGE_SIZE, limit - len(matches))
            page = await self._run_queues.list_dead_tasks(scope, selection.queue, limit=size, after=after)
            matches += await self._filter(selection, page.tasks)
            scanned += len(page.tasks)
            after = page.next
            if after is None or len(matches) >= limit or scanned >= max_scanned:
                return DeadTaskMatches(matches, after, scanned)

    async def get(self, scope: Scope, task_id: str) -> Task:
        """Return a dead task. Raises UnknownTask if it is not dead."""
        task = await self._run_queues.get_task(scope, task_id)
        if task.state is not TaskState.DEAD:
            raise UnknownTask(f"Task {task_id} is {task.state}, not dead.", taskId=task_id)
        return task

    async def change(self, scope: Scope, kind: str, queue: str, task_ids: Sequence[str]) -> int:
        """Redrive (`requeue`) or delete (`purge`) tasks; return how many of them were dead."""
        change = self._run_queues.redrive if kind == "requeue" else self._run_queues.delete_dead
        outcomes = await change(scope, queue, task_ids) if task_ids else []
        return sum(isinstance(outcome, TaskChange) for outcome in outcomes)

    async def list_error_groups(
        self, scope: Scope, queue: str, hours: int
    ) -> tuple[list[TaskErrorGroup], bool]:
        """Return the errors of the dead tasks, the most frequent first, and whether all tasks were
        scanned."""
        matches = await self.search(scope, DeadLetterFilter(queue=queue), limit=MAX_SCANNED)
        patterns = await self._dead_letters.find_error_patterns([task.error for task in matches.tasks])
        this_hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        groups: dict[uuid.UUID, TaskErrorGroup] = {}
        for task in matches.tasks:
            key, pattern = patterns[task.error]
            group = groups.setdefault(key, TaskErrorGroup(key, pattern, task.error, hours=[0] * hours))
            died_at = time_of_death(task)
            group.tasks += 1
            group.first_at = min(group.first_at or died_at, died_at)
            group.last_at, group.example = died_at, task.error
            hours_ago = max(0, -((died_at - this_hour) // timedelta(hours=1)))
            if hours_ago < hours:
                group.hours[hours - 1 - hours_ago] += 1
        return sorted(groups.values(), key=lambda group: -group.tasks), matches.next is None

    async def count(self, scope: Scope, selection: DeadLetterFilter) -> tuple[int, bool]:
        """Return how many tasks match, within the scan limit, and whether the count is exact."""
        check_task_filter(selection)
        assert selection.queue is not None
        if selection == DeadLetterFilter(queue=selection.queue, group=selection.group):
            return (await self._run_queues.get_queue(scope, selection.queue)).dead, True
        matches = await self.search(scope, selection, limit=MAX_SCANNED)
        return len(matches.tasks), matches.next is None

    async def find_queue(self, scope: Scope, task_ids: Sequence[str]) -> str:
        """Return the run queue of the tasks. Raises InvalidRequest for several, UnknownTask if none
        exists."""
        results = await asyncio.gather(
            *(self._run_queues.get_task(scope, task_id) for task_id in task_ids), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, UnknownTask):
                raise result
        queues = {task.queue for task in results if isinstance(task, Task)}
        if not queues:
            raise UnknownTask("None of these tasks exists any more.")
        if len(queues) > 1:
            raise InvalidRequest(
                f"The tasks belong to several run queues ({', '.join(sorted(queues))}). "
                "Send the tasks of one run queue per request.",
                field="letterIds",
            )
        return queues.pop()

    async def create_job(
        self,
        scope: Scope,
        kind: str,
        selection: DeadLetterFilter,
        *,
        task_ids: Sequence[str] | None,
        rate: int | None,
    ) -> DeadLetterJob:
        if task_ids is None:
            total, is_exact = await self.count(scope, selection)
        else:
            total, is_exact = len(set(task_ids)), True
        return await self._jobs.create_for_tasks(
            scope, kind, selection, task_ids=task_ids, rate=rate, total=total, total_is_exact=is_exact
        )

    async def advance_job(self, job: DeadLetterJob, owner: uuid.UUID, limit: int) -> DeadLetterJob:
        """Execute one chunk and return the job afterwards."""
        assert job.queue is not None
        scope = await self._jobs.get_scope(job.id)
        if not await self._jobs.renew_lease(job.id, owner):
            current = await self._jobs.get(scope, job.id)
            assert current is not None
            return current
        cursor = None
        if job.task_ids is not None:
            chunk = job.task_ids[job.scanned : job.scanned + limit]
            scanned, ended = len(chunk), job.scanned + limit >= len(job.task_ids)
        else:
            selection = DeadLetterFilter(
                queue=job.queue,
                start=job.failed_from,
                end=job.failed_before,
                error=job.error,
                error_key=job.error_key,
                payload=job.payload,
            )
            matches = await self.search(
                scope, selection, limit=limit, after=job.task_cursor, max_scanned=PAGE_SIZE
            )
            chunk = [task.id for task in matches.tasks]
            scanned, cursor, ended = matches.scanned, matches.next, matches.next is None
        changed = await self.change(scope, job.kind, job.queue, chunk)
        return await self._jobs.advance_for_tasks(
            job.id, scanned=scanned, changed=changed, task_cursor=cursor, ended=ended
        )

    async def _filter(self, selection: DeadLetterFilter, tasks: Sequence[Task]) -> list[Task]:
        matches = [task for task in tasks if _matches(selection, task)]
        if selection.error_key is not None:
            patterns = await self._dead_letters.find_error_patterns([task.error for task in matches])
            matches = [task for task in matches if patterns[task.error][0] == selection.error_key]
        return matches


def time_of_death(task: Task) -> datetime:
    return to_utc((task.dead_ms or 0) / 1000)


def check_task_filter(selection: DeadLetterFilter) -> None:
    """Refuse a filter by partition or consumer group, which run queues do not have."""
    if selection.partition is not None:
        raise InvalidRequest(
            f"{selection.queue!r} is a run queue and has no partitions. Omit `partition`.", field="partition"
        )
    if selection.group not in (None, QUEUE_MODE):
        raise InvalidRequest(
            f"{selection.queue!r} is a run queue; its only consumer group is {QUEUE_MODE}.",
            field="consumerGroup",
        )


def _matches(selection: DeadLetterFilter, task: Task) -> bool:
    died_at = time_of_death(task)
    return (
        (selection.start is None or died_at >= selection.start)
        and (selection.end is None or died_at < selection.end)
        and (selection.error is None or selection.error.lower() in task.error.lower())
        and (selection.payload is None or selection.payload.encode() in task.payload)
    )
