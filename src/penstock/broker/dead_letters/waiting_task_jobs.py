"""Jobs that delete waiting tasks of run queues, or declare them dead.

The tasks are in Redis and the progress of a job is in PostgreSQL, so a process that dies in between leaves a
chunk that is executed and not counted. No task is changed twice.
"""

from __future__ import annotations

import uuid

from penstock.broker.dead_letters.dead_letter_source import DeadLetterTotal
from penstock.clock import to_utc
from penstock.durable.dead_letters.jobs import BulkChange, DeadLetterJob, JobStore
from penstock.durable.pool import Database
from penstock.errors import InvalidRequest, UnknownQueue
from penstock.model import Scope
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import Task, TaskState
from penstock.runqueue.waiting_tasks import START, WaitingTaskAction

WAITING_STATES = (TaskState.DELAYED, TaskState.ELIGIBLE)
MAX_SCANNED = 10_000
"""Tasks that are read to say in advance how many match a filter."""
SCAN_SIZE = 100
"""Tasks per call to Redis, with their payloads."""


class WaitingTaskJobs:
    """Jobs over the tasks of one run queue that wait. A task that runs is skipped and counted."""

    def __init__(self, database: Database, run_queues: RunQueues) -> None:
        self._jobs = JobStore(database)
        self._run_queues = run_queues

    async def preview(self, scope: Scope, change: BulkChange) -> DeadLetterTotal:
        """Return how many tasks match. Raises UnknownQueue or InvalidRequest."""
        if change.group is not None or change.partition is not None:
            raise InvalidRequest(
                f"{change.queue!r} is a run queue and has no partitions and consumer groups. Omit both.",
                field="partition" if change.group is None else "consumerGroup",
            )
        state = await self._run_queues.get_queue(scope, change.queue)
        if change.payload is None and change.start is None and change.end is None:
            counts = {TaskState.DELAYED: state.delayed, TaskState.ELIGIBLE: state.eligible}
            total = sum(counts[task_state] for task_state in _states(change.task_state))
            return DeadLetterTotal(total, True)
        matches: set[str] = set()
        scanned, cursor = 0, None
        while scanned < MAX_SCANNED:
            tasks, cursor = await self._scan(scope, change.queue, change.task_state, cursor, SCAN_SIZE)
            scanned += len(tasks)
            matches.update(task.id for task in tasks if _matches(change, task))
            if cursor is None:
                break
        return DeadLetterTotal(len(matches), cursor is None)

    async def create(self, scope: Scope, change: BulkChange) -> DeadLetterJob:
        """Create a job. Raises UnknownQueue or InvalidRequest."""
        total, is_exact = await self.preview(scope, change)
        return await self._jobs.create_for_waiting_tasks(scope, change, total=total, total_is_exact=is_exact)

    async def advance(
        self, job: DeadLetterJob, owner: uuid.UUID, limit: int, max_scanned: int
    ) -> DeadLetterJob:
        """Execute one chunk of a job that `owner` holds, and return the job afterwards."""
        assert job.queue is not None
        scope = await self._jobs.get_scope(job.id)
        change = BulkChange(
            kind=job.kind,
            queue=job.queue,
            start=job.failed_from,
            end=job.failed_before,
            payload=job.payload,
        )
        action: WaitingTaskAction = "delete" if job.kind == "purge" else "declare_dead"
        try:
            tasks, cursor = await self._scan(
                scope, job.queue, job.task_state, job.task_cursor, min(limit, SCAN_SIZE)
            )
            task_ids = list({task.id: None for task in tasks if _matches(change, task)})
            changed, skipped = await self._run_queues.waiting_tasks.change(
                scope, job.queue, task_ids, action, job.reason or ""
            )
        except UnknownQueue:  # it was deleted meanwhile
            tasks, cursor, changed, skipped = [], None, 0, 0
        return await self._jobs.advance_for_tasks(
            job.id,
            scanned=len(tasks),
            changed=changed,
            skipped=skipped,
            task_cursor=cursor,
            ended=cursor is None,
        )

    async def _scan(
        self, scope: Scope, queue: str, task_state: str | None, cursor: str | None, count: int
    ) -> tuple[list[Task], str | None]:
        """Return some tasks and the cursor after them, None at the end: `STATE:CURSOR`, state by state."""
        states = _states(task_state)
        name, _, position = (cursor or f"{states[0]}:{START}").partition(":")
        state = TaskState(name)
        tasks, next_position = await self._run_queues.waiting_tasks.scan(scope, queue, state, position, count)
        if next_position is not None:
            return tasks, f"{state}:{next_position}"
        following = states[states.index(state) + 1 :]
        return tasks, f"{following[0]}:{START}" if following else None


def _states(task_state: str | None) -> tuple[TaskState, ...]:
    return WAITING_STATES if task_state is None else (TaskState(task_state),)


def _matches(change: BulkChange, task: Task) -> bool:
    enqueued_at = to_utc(task.enqueued_ms / 1000)
    return (
        (change.start is None or enqueued_at >= change.start)
        and (change.end is None or enqueued_at < change.end)
        and (change.payload is None or change.payload.encode() in task.payload)
    )
