"""Dead tasks of run queues, treated as dead letters are.

They live in Redis, which keeps their number and their order of death but knows no groups of errors: whoever
asks for those, or for a text, has tasks looked at. A job's progress is in PostgreSQL, its tasks in Redis, so
a process that dies in between leaves a chunk done and not counted; nothing is done twice, because a task that
was tried again is not dead, and one that died again since is left alone.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.clock import to_utc
from penstock.durable.catalog import QueueCatalog
from penstock.durable.dead_letters.dead_letter_store import DeadLetterFilter, DeadLetterStore
from penstock.durable.dead_letters.jobs import JobStore
from penstock.durable.pool import Database
from penstock.errors import InvalidRequest, UnknownQueue, UnknownTask
from penstock.model import QUEUE_MODE, Scope
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import QueueState, Task, TaskChange, TaskState

PAGE = 500
LOOK_AT = 10_000
"""Tasks that are looked at for a text or a group of errors, per question."""


@dataclass(slots=True)
class ErrorGroup:
    """Dead tasks that died of the same."""

    key: uuid.UUID
    pattern: str
    example: str
    tasks: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None
    hours: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Found:
    """Dead tasks, the first that died first. `next` goes on behind what was looked at; None at the end."""

    tasks: list[Task]
    next: str | None
    looked_at: int


class DeadTasks:
    def __init__(self, database: Database, run_queues: RunQueues) -> None:
        self._database = database
        self._run_queues = run_queues

    async def is_run_queue(self, scope: Scope, queue: str) -> bool:
        """Whether the name is a run queue's. A durable queue is told without asking Redis."""
        if await QueueCatalog(self._database).has_queue(scope, queue):
            return False
        return await self._run_queues.has_queue(scope, queue)

    async def counts(self, scope: Scope) -> list[QueueState]:
        """The run queues that have dead tasks, by name."""
        found = [state for state in await self._run_queues.list_queues(scope) if state.dead]
        return sorted(found, key=lambda state: state.queue)

    async def oldest(self, scope: Scope, queue: str) -> datetime | None:
        """When the first of a run queue's dead tasks died; None if there is none, or no such queue."""
        try:
            page = await self._run_queues.list_dead_tasks(scope, queue, limit=1)
        except UnknownQueue:
            return None
        return died(page.tasks[0]) if page.tasks else None

    async def find(
        self,
        scope: Scope,
        which: DeadLetterFilter,
        *,
        limit: int,
        after: str | None = None,
        look_at: int = LOOK_AT,
    ) -> Found:
        """Tasks of the run queue `which.queue` that match."""
        check(which)
        assert which.queue is not None
        matching: list[Task] = []
        looked_at = 0
        while True:
            size = min(PAGE, limit - len(matching))
            page = await self._run_queues.list_dead_tasks(scope, which.queue, limit=size, after=after)
            matching += await self._matching(which, page.tasks)
            looked_at += len(page.tasks)
            after = page.next
            if after is None or len(matching) >= limit or looked_at >= look_at:
                return Found(matching, after, looked_at)

    async def task(self, scope: Scope, task_id: str) -> Task:
        """A dead task, or UnknownTask."""
        task = await self._run_queues.get_task(scope, task_id)
        if task.state is not TaskState.DEAD:
            raise UnknownTask(f"task {task_id} is {task.state}, not dead", taskId=task_id)
        return task

    async def change(self, scope: Scope, kind: str, queue: str, task_ids: Sequence[str]) -> int:
        """Let tasks run again (`requeue`) or delete them (`purge`); how many of them were dead."""
        call = self._run_queues.redrive if kind == "requeue" else self._run_queues.delete_dead
        outcomes = await call(scope, queue, task_ids) if task_ids else []
        return sum(isinstance(outcome, TaskChange) for outcome in outcomes)

    async def groups(self, scope: Scope, queue: str, hours: int) -> tuple[list[ErrorGroup], bool]:
        """What tasks of a run queue died of, the most frequent first; whether all were looked at."""
        found = await self.find(scope, DeadLetterFilter(queue=queue), limit=LOOK_AT)
        patterns = await DeadLetterStore(self._database).find_error_patterns(
            [task.error for task in found.tasks]
        )
        this_hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        groups: dict[uuid.UUID, ErrorGroup] = {}
        for task in found.tasks:
            key, pattern = patterns[task.error]
            group = groups.setdefault(key, ErrorGroup(key, pattern, task.error, hours=[0] * hours))
            died_at = died(task)
            group.tasks += 1
            group.first_at = min(group.first_at or died_at, died_at)
            group.last_at, group.example = died_at, task.error
            ago = max(0, -((died_at - this_hour) // timedelta(hours=1)))
            if ago < hours:
                group.hours[hours - 1 - ago] += 1
        return sorted(groups.values(), key=lambda group: -group.tasks), found.next is None

    async def count(self, scope: Scope, which: DeadLetterFilter) -> tuple[int, bool]:
        """How many tasks match, as far as it can be told at once; whether that is all of them."""
        check(which)
        assert which.queue is not None
        if which == DeadLetterFilter(queue=which.queue, group=which.group):
            return (await self._run_queues.get_queue(scope, which.queue)).dead, True
        found = await self.find(scope, which, limit=LOOK_AT)
        return len(found.tasks), found.next is None

    async def queue_of(self, scope: Scope, task_ids: Sequence[str]) -> str:
        """The run queue of tasks; InvalidRequest if they are of several, UnknownTask if none is there."""
        found = await asyncio.gather(
            *(self._run_queues.get_task(scope, task_id) for task_id in task_ids), return_exceptions=True
        )
        for failure in found:
            if isinstance(failure, BaseException) and not isinstance(failure, UnknownTask):
                raise failure
        queues = {task.queue for task in found if isinstance(task, Task)}
        if not queues:
            raise UnknownTask("none of these tasks is there any more")
        if len(queues) > 1:
            raise InvalidRequest(
                f"these tasks are of several run queues ({', '.join(sorted(queues))}): name those of one",
                field="letterIds",
            )
        return queues.pop()

    async def make_job(
        self,
        scope: Scope,
        kind: str,
        which: DeadLetterFilter,
        *,
        task_ids: Sequence[str] | None,
        rate: int | None,
    ) -> Any:
        """The job as it was noted."""
        total, exact = await self.count(scope, which) if task_ids is None else (len(set(task_ids)), True)
        return await JobStore(self._database).create_for_tasks(
            scope, kind, which, task_ids=task_ids, rate=rate, total=total, total_is_exact=exact
        )

    async def advance(self, job: Any, owner: uuid.UUID, limit: int) -> Any:
        """Do one chunk of a job; the job afterwards."""
        scope = await JobStore(self._database).get_scope(job.id)
        if not await JobStore(self._database).renew_lease(job.id, owner):
            return await JobStore(self._database).get(scope, job.id)
        at_task = None
        if job.task_ids is not None:
            chunk = job.task_ids[job.scanned : job.scanned + limit]
            looked_at, ended = len(chunk), job.scanned + limit >= len(job.task_ids)
        else:
            which = DeadLetterFilter(
                queue=job.queue,
                start=job.failed_from,
                end=job.failed_before,
                error=job.error,
                error_key=job.error_key,
                payload=job.payload,
            )
            found = await self.find(scope, which, limit=limit, after=job.task_cursor, look_at=PAGE)
            chunk = [task.id for task in found.tasks]
            looked_at, at_task, ended = found.looked_at, found.next, found.next is None
        changed = await self.change(scope, job.kind, job.queue, chunk)
        return await JobStore(self._database).advance_for_tasks(
            job.id, scanned=looked_at, changed=changed, task_cursor=at_task, ended=ended
        )

    async def _matching(self, which: DeadLetterFilter, tasks: Sequence[Task]) -> list[Task]:
        found = [task for task in tasks if _matches(which, task)]
        if which.error_key is not None:
            patterns = await DeadLetterStore(self._database).find_error_patterns(
                [task.error for task in found]
            )
            found = [task for task in found if patterns[task.error][0] == which.error_key]
        return found


def died(task: Task) -> datetime:
    return to_utc((task.dead_ms or 0) / 1000)


def check(which: DeadLetterFilter) -> None:
    """Refuse what a run queue does not have."""
    if which.partition is not None:
        raise InvalidRequest(f"{which.queue!r} is a run queue, which has no partitions", field="partition")
    if which.group not in (None, QUEUE_MODE):
        raise InvalidRequest(
            f"{which.queue!r} is a run queue, whose only group is {QUEUE_MODE}", field="consumerGroup"
        )


def _matches(which: DeadLetterFilter, task: Task) -> bool:
    died_at = died(task)
    return (
        (which.start is None or died_at >= which.start)
        and (which.end is None or died_at < which.end)
        and (which.error is None or which.error.lower() in task.error.lower())
        and (which.payload is None or which.payload.encode() in task.payload)
    )
