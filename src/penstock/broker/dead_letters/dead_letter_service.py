"""Dead letters of all queues: find the kind of a queue or an id, count per queue, and manage jobs."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import NamedTuple

from penstock.broker.dead_letters.dead_letter_source import (
    DeadLetterSource,
    DeadLetterTotal,
    ErrorGroup,
    ErrorGroupPage,
    ErrorGroupQuery,
    JobPreview,
    JobRequest,
    PageRequest,
    QueueCount,
    QueueCounts,
)
from penstock.broker.dead_letters.message_dead_letters import MessageDeadLetters
from penstock.broker.dead_letters.message_jobs import MessageJobs
from penstock.broker.dead_letters.task_dead_letters import TaskDeadLetters
from penstock.broker.dead_letters.waiting_task_jobs import WaitingTaskJobs
from penstock.broker.durable_store import DurableStore
from penstock.durable.cluster_lock import ResourceBusy
from penstock.durable.dead_letters.dead_letter_store import DeadLetterDrift, DeadLetterFilter
from penstock.durable.dead_letters.error_group_store import ErrorGroupChange
from penstock.durable.dead_letters.jobs import BulkChange, DeadLetterJob
from penstock.errors import PenstockError, RedisUnavailable
from penstock.model import Scope

REDIS_TIMEOUT_S = 1.0


class UnknownJob(PenstockError):
    code = "unknown_job"
    status = 404
    title = "Unknown job"


class UnknownErrorGroup(PenstockError):
    code = "unknown_error_group"
    status = 404
    title = "Unknown error group"


class QueueCountsPage(NamedTuple):
    """A page of counts over both kinds of queues. `missing`: the queues that could not be read, and why."""

    rows: list[QueueCount]
    total: int
    missing: str | None


class DeadLetterService:
    """Chooses the source of a request: the messages of durable queues, or the tasks of run queues."""

    def __init__(self, store: DurableStore, messages: MessageDeadLetters, message_jobs: MessageJobs) -> None:
        self._store = store
        self._message_jobs = message_jobs
        self.messages = messages
        self.tasks: TaskDeadLetters | None = None
        """Dead tasks of run queues; None in a process without run queues."""
        self.task_jobs: WaitingTaskJobs | None = None
        self.on_job_created: Callable[[], None] = lambda: None

    def source_of_letter(self, letter_id: str) -> DeadLetterSource:
        """Return the source of an id: ids of tasks have hyphens, those of dead messages are numbers."""
        if "-" not in letter_id:
            return self.messages
        assert self.tasks is not None
        return self.tasks

    async def source_of_queue(
        self, scope: Scope, queue: str | None, *, for_change: bool = False
    ) -> DeadLetterSource:
        """Return the tasks if the name is that of a run queue, else the messages.

        A durable queue needs no call to Redis. While Redis is unreachable, any other name reads as a durable
        queue. With `for_change` it raises RedisUnavailable instead, so that no change silently affects
        nothing.
        """
        if queue is None or self.tasks is None:
            return self.messages
        try:
            async with asyncio.timeout(REDIS_TIMEOUT_S):
                return self.tasks if await self.tasks.is_run_queue(scope, queue) else self.messages
        except (RedisUnavailable, TimeoutError):
            if for_change:
                raise RedisUnavailable(
                    f"{queue!r} is not a durable queue, and Redis does not answer whether it is a run queue. "
                    "Retry when Redis is reachable."
                ) from None
            return self.messages

    async def count_page(
        self,
        scope: Scope,
        limit: int,
        offset: int,
        *,
        queue: str | None = None,
        group: str | None = None,
        ages: bool = False,
    ) -> QueueCountsPage:
        """A page of counts: durable queues by name, then run queues, which are missing without Redis."""
        selection = DeadLetterFilter(queue=queue, group=group)
        messages, tasks = await asyncio.gather(
            self.messages.count_by_queue(scope, selection, PageRequest(limit, offset), ages=ages),
            self._count_by_run_queue(scope, selection, PageRequest(offset + limit), ages=ages),
        )
        if tasks is None:
            return QueueCountsPage(messages.rows, messages.total, "run queues: Redis does not answer")
        start = max(0, offset - messages.total)
        rows = messages.rows + tasks.rows[start : start + limit - len(messages.rows)]
        return QueueCountsPage(rows, messages.total + tasks.total, None)

    async def _count_by_run_queue(
        self, scope: Scope, selection: DeadLetterFilter, page: PageRequest, *, ages: bool
    ) -> QueueCounts | None:
        """Return the counts of run queues; None if Redis does not respond."""
        if self.tasks is None:
            return QueueCounts([], 0)
        try:
            async with asyncio.timeout(REDIS_TIMEOUT_S):
                return await self.tasks.count_by_queue(scope, selection, page, ages=ages)
        except (RedisUnavailable, TimeoutError):
            return None

    async def list_error_groups(
        self, scope: Scope, query: ErrorGroupQuery, *, limit: int, offset: int
    ) -> ErrorGroupPage:
        """Return a page of error groups: of a run queue, or of durable queues."""
        source = await self.source_of_queue(scope, query.queue)
        return await source.list_error_groups(scope, query, limit=limit, offset=offset)

    async def get_error_group(
        self, scope: Scope, error_key: uuid.UUID, queue: str | None = None, hours: int = 24
    ) -> ErrorGroup:
        """Return one error group. Raises UnknownErrorGroup."""
        query = ErrorGroupQuery(queue, error_key=error_key, hours=hours)
        page = await self.list_error_groups(scope, query, limit=1, offset=0)
        if not page.groups:
            raise unknown_error_group(error_key, queue)
        return page.groups[0]

    async def change_error_group(
        self, scope: Scope, error_key: uuid.UUID, queue: str | None, change: ErrorGroupChange
    ) -> list[str]:
        """Change the state, owner or note of an error group, in one queue or in all; return its queues.

        The groups of a run queue are changed with its name. Raises UnknownErrorGroup.
        """
        source = await self.source_of_queue(scope, queue, for_change=True)
        example = await source.find_error_example(scope, queue, error_key)
        store = self._store.error_groups
        queues = await store.change(scope, error_key, queue, change, task_example=example)
        if not queues:
            raise unknown_error_group(error_key, queue)
        return queues

    async def read_drift(self) -> DeadLetterDrift:
        """Return by how many dead letters recounts have corrected the counts of durable queues."""
        return await self._store.dead_letters.read_drift()

    async def preview_job(self, scope: Scope, request: JobRequest) -> JobPreview:
        """Return what a job would change."""
        return await (await self._source_of_job(scope, request)).preview_job(scope, request)

    async def count_job_by_queue(self, scope: Scope, request: JobRequest) -> dict[str, int]:
        """Return how many dead letters of each durable queue a job selects by id; empty for other jobs."""
        if not request.letter_ids or self.source_of_letter(request.letter_ids[0]) is not self.messages:
            return {}
        letter_ids = [int(letter_id) for letter_id in request.letter_ids]
        return await self._store.dead_letters.count_by_queue(scope, letter_ids)

    async def create_job(self, scope: Scope, request: JobRequest) -> DeadLetterJob:
        """Create a job, which any broker may execute."""
        job = await (await self._source_of_job(scope, request)).create_job(scope, request)
        self.on_job_created()
        return job

    async def purge_group(self, scope: Scope, queue: str, group: str) -> DeadLetterJob:
        """Create a job that deletes all dead letters of a group. Raises UnknownGroup if it has had none."""
        source = await self.source_of_queue(scope, queue, for_change=True)
        await source.check_group(scope, queue, group)
        return await self.create_job(scope, JobRequest("purge", DeadLetterFilter(queue=queue, group=group)))

    def _bulk_jobs(self, subject: str) -> MessageJobs | WaitingTaskJobs:
        if subject == "messages":
            return self._message_jobs
        assert self.task_jobs is not None
        return self.task_jobs

    async def preview_bulk_job(self, scope: Scope, subject: str, change: BulkChange) -> DeadLetterTotal:
        """Return how many messages or waiting tasks a job would change or skip."""
        return await self._bulk_jobs(subject).preview(scope, change)

    async def create_bulk_job(self, scope: Scope, subject: str, change: BulkChange) -> DeadLetterJob:
        """Create a job on messages or on waiting tasks, which any broker may execute."""
        job = await self._bulk_jobs(subject).create(scope, change)
        self.on_job_created()
        return job

    async def _source_of_job(self, scope: Scope, request: JobRequest) -> DeadLetterSource:
        if request.letter_ids:
            return self.source_of_letter(request.letter_ids[0])
        return await self.source_of_queue(scope, request.selection.queue, for_change=True)

    async def list_jobs(self, scope: Scope, *, limit: int, offset: int) -> list[DeadLetterJob]:
        """Return a page of jobs, the latest first."""
        return await self._store.jobs.list_jobs(scope, limit=limit, offset=offset)

    async def get_job(self, scope: Scope, job_id: uuid.UUID) -> DeadLetterJob:
        return _require_job(job_id, await self._store.jobs.get(scope, job_id))

    async def cancel_job(self, scope: Scope, job_id: uuid.UUID) -> DeadLetterJob:
        """Stop a job after its current chunk; a job that has ended does not change."""
        return _require_job(job_id, await self._store.jobs.cancel(scope, job_id))

    async def lease_job(self, owner: uuid.UUID) -> DeadLetterJob | None:
        """Lease a job that no process executes; None if there is none."""
        return await self._store.jobs.lease(owner)

    async def advance_job(
        self, job: DeadLetterJob, owner: uuid.UUID, limit: int, max_scanned: int
    ) -> DeadLetterJob:
        """Execute one chunk and return the job afterwards."""
        if job.run_queue and (self.tasks is None or self.task_jobs is None):
            raise ResourceBusy("This process has no run queues. Another broker must execute the job.")
        # A chunk in PostgreSQL renews the lease itself; one in Redis cannot.
        if job.run_queue and not await self._store.jobs.renew_lease(job.id, owner):
            return await self.get_job(await self._store.jobs.get_scope(job.id), job.id)
        if job.subject != "dead_letters":
            return await self._bulk_jobs(job.subject).advance(job, owner, limit, max_scanned)
        source = self.tasks if job.run_queue else self.messages
        assert source is not None
        return await source.advance_job(job, owner, limit, max_scanned)

    async def release_job(self, job: DeadLetterJob, owner: uuid.UUID) -> None:
        await self._store.jobs.release(job.id, owner)

    async def fail_job(self, job: DeadLetterJob, owner: uuid.UUID, reason: str) -> None:
        await self._store.jobs.fail(job.id, owner, reason)


def _require_job(job_id: uuid.UUID, job: DeadLetterJob | None) -> DeadLetterJob:
    if job is None:
        raise UnknownJob(
            f"Job {job_id} does not exist. GET /api/v1/jobs lists the jobs of the last 31 days.",
            jobId=str(job_id),
        )
    return job


def unknown_error_group(error_key: uuid.UUID, queue: str | None) -> UnknownErrorGroup:
    place = "" if queue is None else f" in queue {queue!r}"
    return UnknownErrorGroup(
        f"Error group {error_key} does not exist{place}. GET /api/v1/dlq/groups lists error groups.",
        errorGroup=str(error_key),
    )
