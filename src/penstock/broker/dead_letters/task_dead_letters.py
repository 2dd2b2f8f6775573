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
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from penstock.broker.dead_letters.dead_letter_source import (
    DeadLetterDetails,
    DeadLetterList,
    DeadLetterTotal,
    ErrorGroup,
    ErrorGroupPage,
    ErrorGroupQuery,
    JobPreview,
    JobRequest,
    PageRequest,
    QueueCount,
    QueueCounts,
    RequeuedDeadLetter,
    unknown_dead_letter,
)
from penstock.clock import to_utc
from penstock.durable.catalog import QueueCatalog
from penstock.durable.dead_letters.dead_letter_store import DeadLetterFilter, DeadLetterStore
from penstock.durable.dead_letters.error_group_store import (
    DeadTaskExample,
    ErrorGroupStatus,
    ErrorGroupStore,
)
from penstock.durable.dead_letters.jobs import DeadLetterJob, JobStore, TaskSample, TaskSampleOutcome
from penstock.durable.pool import Database
from penstock.encryption import DecryptedPayload
from penstock.errors import InvalidRequest, UnknownQueue, UnknownTask
from penstock.model import QUEUE_MODE, Scope
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import Task, TaskChange, TaskState

PAGE_SIZE = 500
MAX_AGES = 200
"""Run queues whose oldest dead task is read: each needs a round trip to Redis."""
MAX_SCANNED = 10_000
"""Tasks that one search for a text or an error group scans."""


@dataclass(frozen=True, slots=True)
class DeadTaskMatches:
    """Matching dead tasks, the earliest death first. `next` is the cursor after the scanned tasks; None at
    the end."""

    tasks: list[Task]
    next: str | None
    scanned: int


class TaskChunk(NamedTuple):
    """The next tasks of a job, and the cursor after them."""

    task_ids: list[str]
    next: str | None
    scanned: int
    is_last: bool


class TaskDeadLetters:
    """A `DeadLetterSource` over the tasks in Redis. A letter id is the id of the task."""

    def __init__(self, database: Database, run_queues: RunQueues) -> None:
        self._catalog = QueueCatalog(database)
        self._dead_letters = DeadLetterStore(database)
        self._error_groups = ErrorGroupStore(database)
        self._jobs = JobStore(database)
        self._run_queues = run_queues

    async def is_run_queue(self, scope: Scope, queue: str) -> bool:
        """Return whether the name is that of a run queue. A durable queue needs no call to Redis."""
        if await self._catalog.has_queue(scope, queue):
            return False
        return await self._run_queues.has_queue(scope, queue)

    async def count_by_queue(
        self, scope: Scope, selection: DeadLetterFilter, page: PageRequest, *, ages: bool
    ) -> QueueCounts:
        if selection.group not in (None, QUEUE_MODE):
            return QueueCounts([], 0)
        states = [
            state
            for state in await self._run_queues.list_queues(scope)
            if state.dead and selection.queue in (None, state.queue)
        ]
        rows = []
        states.sort(key=lambda state: state.queue)
        for index, state in enumerate(states[page.offset : page.offset + page.limit]):
            has_age = ages and index < MAX_AGES
            oldest_at = await self._find_oldest_death(scope, state.queue) if has_age else None
            rows.append(QueueCount(state.queue, "run", QUEUE_MODE, state.dead, oldest_at))
        return QueueCounts(rows, len(states))

    async def _find_oldest_death(self, scope: Scope, queue: str) -> datetime | None:
        """Return when the first dead task of a run queue died; None without dead tasks or queue."""
        try:
            page = await self._run_queues.list_dead_tasks(scope, queue, limit=1)
        except UnknownQueue:
            return None
        return _time_of_death(page.tasks[0]) if page.tasks else None

    async def list_page(self, scope: Scope, selection: DeadLetterFilter, page: PageRequest) -> DeadLetterList:
        """Return a page of a run queue, the earliest death first. `offset` is ignored: pages have cursors."""
        matches = await self._search(scope, selection, limit=page.limit, after=page.cursor)
        return DeadLetterList([_details(task) for task in matches.tasks], matches.next)

    async def _search(
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

    async def get(self, scope: Scope, letter_id: str) -> DeadLetterDetails:
        """Return a dead task. Raises UnknownTask if it is not dead."""
        task = await self._run_queues.get_task(scope, letter_id)
        if task.state is not TaskState.DEAD:
            raise UnknownTask(f"Task {letter_id} is {task.state}, not dead.", taskId=letter_id)
        return _details(task)

    async def count(self, scope: Scope, selection: DeadLetterFilter) -> DeadLetterTotal:
        """Return how many tasks match, within the scan limit, and whether the count is exact."""
        check_task_filter(selection)
        assert selection.queue is not None
        if selection == DeadLetterFilter(queue=selection.queue, group=selection.group):
            return DeadLetterTotal((await self._run_queues.get_queue(scope, selection.queue)).dead, True)
        matches = await self._search(scope, selection, limit=MAX_SCANNED)
        return DeadLetterTotal(len(matches.tasks), matches.next is None)

    async def list_error_groups(
        self, scope: Scope, query: ErrorGroupQuery, *, limit: int, offset: int
    ) -> ErrorGroupPage:
        """Return the error groups of a run queue, whatever the consumer group; it has only one."""
        assert query.queue is not None
        groups, is_complete = await self._read_error_groups(scope, query.queue, query.hours)
        matching = [
            group
            for group in groups
            if query.error_key in (None, group.key)
            and (query.states is None or group.status.state in query.states)
        ]
        matching.sort(key=lambda group: -group.count)
        return ErrorGroupPage(matching[offset : offset + limit], len(matching), is_complete)

    async def _read_error_groups(self, scope: Scope, queue: str, hours: int) -> tuple[list[ErrorGroup], bool]:
        """Return the error groups of a run queue, and whether all its dead tasks were read."""
        matches = await self._search(scope, DeadLetterFilter(queue=queue), limit=MAX_SCANNED)
        patterns = await self._dead_letters.find_error_patterns([task.error for task in matches.tasks])
        deaths = [(patterns[task.error][0], _time_of_death(task)) for task in matches.tasks]
        states = await self._error_groups.list_task_states(scope, queue, deaths)
        this_hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        groups: dict[uuid.UUID, ErrorGroup] = {}
        for task, (key, died_at) in zip(matches.tasks, deaths, strict=True):
            pattern, status = patterns[task.error][1], states.get(key, ErrorGroupStatus())
            error_group = groups.setdefault(
                key, ErrorGroup(key, pattern, [queue], [QUEUE_MODE], task.error, [0] * hours, status=status)
            )
            error_group.count += 1
            error_group.first_at = min(error_group.first_at or died_at, died_at)
            error_group.last_at, error_group.example = died_at, task.error
            hours_ago = max(0, -((died_at - this_hour) // timedelta(hours=1)))
            if hours_ago < hours:
                error_group.hours[hours - 1 - hours_ago] += 1
        return list(groups.values()), matches.next is None

    async def find_error_example(
        self, scope: Scope, queue: str | None, error_key: uuid.UUID
    ) -> DeadTaskExample | None:
        assert queue is not None
        matches = await self._search(scope, DeadLetterFilter(queue=queue, error_key=error_key), limit=1)
        return next((DeadTaskExample(task.error, _time_of_death(task)) for task in matches.tasks), None)

    async def requeue(self, scope: Scope, letter_id: str) -> RequeuedDeadLetter:
        """Make one dead task eligible again. It keeps its id."""
        return RequeuedDeadLetter(await self._change_one(scope, "requeue", letter_id, None))

    async def delete(
        self, scope: Scope, letter_id: str, *, queue: str | None = None, group: str | None = None
    ) -> None:
        if group not in (None, QUEUE_MODE):
            raise unknown_dead_letter(letter_id)
        await self._change_one(scope, "purge", letter_id, queue)

    async def _change_one(
        self, scope: Scope, kind: str, task_id: str, queue: str | None
    ) -> DeadLetterDetails:
        """Change one dead task. Raises UnknownTask if it is not dead, or not of that queue."""
        task = await self.get(scope, task_id)
        if queue not in (None, task.queue) or not await self._change(scope, kind, task.queue, [task_id]):
            raise UnknownTask(f"Dead task {task_id} does not exist in this queue.", taskId=task_id)
        return task

    async def _change(self, scope: Scope, kind: str, queue: str, task_ids: Sequence[str]) -> int:
        """Redrive (`requeue`) or delete (`purge`) tasks; return how many of them were dead."""
        change = self._run_queues.redrive if kind == "requeue" else self._run_queues.delete_dead
        outcomes = await change(scope, queue, task_ids) if task_ids else []
        return sum(isinstance(outcome, TaskChange) for outcome in outcomes)

    async def check_group(self, scope: Scope, queue: str, group: str) -> None:
        """Raise InvalidRequest unless the group is the only one that run queues have."""
        check_task_filter(DeadLetterFilter(queue=queue, group=group))

    async def preview_job(self, scope: Scope, request: JobRequest) -> JobPreview:
        selection, total = await self._resolve_selection(scope, request.selection, request.letter_ids)
        return JobPreview(selection, total, [])

    async def create_job(self, scope: Scope, request: JobRequest) -> DeadLetterJob:
        selection, total = await self._resolve_selection(scope, request.selection, request.letter_ids)
        return await self._jobs.create_for_tasks(
            scope,
            request.kind,
            selection,
            task_ids=request.letter_ids,
            rate=request.rate,
            sample=request.sample,
            created_by=request.created_by,
            total=total.total,
            total_is_exact=total.is_exact,
        )

    async def _resolve_selection(
        self, scope: Scope, selection: DeadLetterFilter, task_ids: Sequence[str] | None
    ) -> tuple[DeadLetterFilter, DeadLetterTotal]:
        """Return the filter with its run queue, and the number of tasks it selects."""
        if task_ids is None:
            return selection, await self.count(scope, selection)
        queue = await self._find_queue(scope, task_ids)
        return replace(selection, queue=queue), DeadLetterTotal(len(task_ids), True)

    async def _find_queue(self, scope: Scope, task_ids: Sequence[str]) -> str:
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

    async def advance_job(
        self, job: DeadLetterJob, owner: uuid.UUID, limit: int, max_scanned: int
    ) -> DeadLetterJob:
        """Execute one chunk, which scans one page of Redis at most."""
        assert job.queue is not None
        scope = await self._jobs.get_scope(job.id)
        if job.awaits_sample and job.sample_ends_at is not None:
            return await self._check_sample(scope, job)
        if job.awaits_sample:
            assert job.sample_size is not None
            limit = min(limit, job.sample_size - job.sample_taken)
        chunk = await self._next_chunk(scope, job, limit, min(max_scanned, PAGE_SIZE))
        if job.awaits_sample:
            return await self._jobs.add_task_samples(
                job.id,
                await self._dead_samples(scope, chunk.task_ids),
                scanned=chunk.scanned,
                task_cursor=chunk.next,
                ended=chunk.is_last,
            )
        changed = await self._change(scope, job.kind, job.queue, chunk.task_ids)
        return await self._jobs.advance_for_tasks(
            job.id, scanned=chunk.scanned, changed=changed, task_cursor=chunk.next, ended=chunk.is_last
        )

    async def _next_chunk(self, scope: Scope, job: DeadLetterJob, limit: int, max_scanned: int) -> TaskChunk:
        """Return the next tasks of a job: of its ids, or of its filter."""
        if job.task_ids is not None:
            task_ids = job.task_ids[job.scanned : job.scanned + limit]
            return TaskChunk(task_ids, None, len(task_ids), job.scanned + limit >= len(job.task_ids))
        matches = await self._search(
            scope, job.selection, limit=limit, after=job.task_cursor, max_scanned=max_scanned
        )
        task_ids = [task.id for task in matches.tasks]
        return TaskChunk(task_ids, matches.next, matches.scanned, matches.next is None)

    async def _dead_samples(self, scope: Scope, task_ids: Sequence[str]) -> list[TaskSample]:
        """Return those of the tasks that are dead now."""
        samples = []
        for task_id in task_ids:
            task = await self._find_task(scope, task_id)
            if task is not None and task.dead_ms:
                samples.append(TaskSample(task_id, task.dead_ms))
        return samples

    async def _check_sample(self, scope: Scope, job: DeadLetterJob) -> DeadLetterJob:
        """Requeue the tasks of the sample that are still dead of before, and record those that have ended.

        The sample is stored before its tasks are requeued, so a process that dies in between loses none, and
        the time of death tells a task that died again: no task is requeued twice.
        """
        assert job.queue is not None
        outcomes, requeued = [], 0
        for sample in await self._jobs.list_pending_samples(job.id):
            task = await self._find_task(scope, sample.task_id)
            if task is None:
                outcomes.append(TaskSampleOutcome(sample.task_id, "acked"))
            elif task.dead_ms == sample.dead_ms:
                requeued += await self._change(scope, job.kind, job.queue, [task.id])
            elif task.state is TaskState.DEAD:
                outcomes.append(TaskSampleOutcome(sample.task_id, "dead", task.error))
        return await self._jobs.record_task_outcomes(job.id, outcomes, requeued)

    async def _find_task(self, scope: Scope, task_id: str) -> Task | None:
        try:
            return await self._run_queues.get_task(scope, task_id)
        except UnknownTask:
            return None

    async def _filter(self, selection: DeadLetterFilter, tasks: Sequence[Task]) -> list[Task]:
        matches = [task for task in tasks if _matches(selection, task)]
        if selection.error_key is not None:
            patterns = await self._dead_letters.find_error_patterns([task.error for task in matches])
            matches = [task for task in matches if patterns[task.error][0] == selection.error_key]
        return matches


def _time_of_death(task: Task) -> datetime:
    return to_utc((task.dead_ms or 0) / 1000)


def _details(task: Task) -> DeadLetterDetails:
    enqueued_at = to_utc(task.enqueued_ms / 1000)
    return DeadLetterDetails(
        letter_id=task.id,
        kind="run",
        queue=task.queue,
        group=QUEUE_MODE,
        message_id=task.id,
        transaction_id=task.id,
        error=task.error,
        attempts=task.attempts,
        total_attempts=task.attempts,
        created_at=enqueued_at,
        failed_at=_time_of_death(task),
        first_created_at=enqueued_at,
        first_transaction_id=task.id,
        payload=DecryptedPayload(task.payload or b"null"),
    )


def check_task_filter(selection: DeadLetterFilter) -> None:
    """Refuse a filter by partition or consumer group, which run queues do not have."""
    if selection.partition is not None:
        raise InvalidRequest(
            f"{selection.queue!r} is a run queue and has no partitions. Omit `partition`.", field="partition"
        )
    if selection.group not in (None, QUEUE_MODE):
        raise InvalidRequest(
            f"{selection.queue!r} is a run queue and has no consumer groups. Omit `consumerGroup`.",
            field="consumerGroup",
        )


def _matches(selection: DeadLetterFilter, task: Task) -> bool:
    died_at = _time_of_death(task)
    return (
        (selection.start is None or died_at >= selection.start)
        and (selection.end is None or died_at < selection.end)
        and (selection.error is None or selection.error.lower() in task.error.lower())
        and (selection.payload is None or selection.payload.encode() in task.payload)
    )
