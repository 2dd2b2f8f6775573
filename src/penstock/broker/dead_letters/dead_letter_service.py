"""Requeue and delete dead letters of durable queues, one by one or many with jobs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from penstock.broker.context import BrokerContext
from penstock.broker.dead_letters.task_dead_letters import TaskDeadLetters
from penstock.durable.dead_letters.dead_letter_store import DeadLetter, DeadLetterFilter, RequeueOutcome
from penstock.durable.dead_letters.jobs import DeadLetterJob
from penstock.durable.maintenance_lock import ResourceBusy
from penstock.errors import PenstockError, QueueFull, UnknownMessage
from penstock.model import Scope

MAX_REQUEUE_ATTEMPTS = 3
"""A dead letter of a queue that became encrypted is encrypted first, and then requeued."""


class UnknownJob(PenstockError):
    code = "unknown_job"
    status = 404
    title = "Unknown job"


class DeadLetterService:
    """Changes dead letters, and creates and advances jobs on them."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.tasks: TaskDeadLetters | None = None
        """Dead tasks of run queues; None in a process without run queues."""
        self.on_job_created: Callable[[], None] = lambda: None

    async def requeue(self, scope: Scope, dead_letter_id: int) -> tuple[DeadLetter, RequeueOutcome]:
        """Push one dead message again for the group that gave up on it; return dead letter and new
        message."""
        dead_letter = await self.get(scope, dead_letter_id)
        for _ in range(MAX_REQUEUE_ATTEMPTS):
            outcomes = await self._context.store.dead_letters.requeue([dead_letter_id])
            if not outcomes:
                raise _unknown_dead_letter(dead_letter_id)
            match outcomes[0].outcome:
                case "queued":
                    self._notify_requeued(scope, outcomes[0].queue_id, dead_letter.queue, 1)
                    return dead_letter, outcomes[0]
                case "queue_full":
                    raise QueueFull(
                        f"Queue {dead_letter.queue!r} is full: it has reached its maxSize. "
                        "Retry when consumers have acked messages.",
                        queue=dead_letter.queue,
                    )
                case "behind":
                    raise ResourceBusy(
                        "Deferred pushes to the partition must be executed first. Retry shortly."
                    )
                case "unsealed":
                    await self._encrypt([dead_letter_id])
        raise ResourceBusy("The dead letter changed during each attempt. Retry shortly.")

    async def delete(
        self, scope: Scope, dead_letter_id: int, *, queue: str | None = None, group: str | None = None
    ) -> None:
        """Delete one dead letter. Raises UnknownMessage if it does not exist in that queue and group."""
        store = self._context.store.dead_letters
        if not await store.delete(scope, dead_letter_id, queue=queue, group=group):
            raise _unknown_dead_letter(dead_letter_id)

    async def get(self, scope: Scope, dead_letter_id: int) -> DeadLetter:
        dead_letter = await self._context.store.dead_letters.get(scope, dead_letter_id)
        if dead_letter is None:
            raise _unknown_dead_letter(dead_letter_id)
        return dead_letter

    async def create_job(
        self,
        scope: Scope,
        kind: str,
        selection: DeadLetterFilter,
        *,
        dead_letter_ids: Sequence[int] | None = None,
        rate: int | None = None,
        dry_run: bool = False,
    ) -> DeadLetterJob:
        """Create a job, which any broker may execute. With `dry_run` only return what it would be."""
        job = await self._context.store.jobs.create(
            scope, kind, selection, dead_letter_ids=dead_letter_ids, rate=rate, dry_run=dry_run
        )
        if not dry_run:
            self.on_job_created()
        return job

    async def create_task_job(
        self,
        scope: Scope,
        kind: str,
        selection: DeadLetterFilter,
        *,
        task_ids: Sequence[str] | None = None,
        rate: int | None = None,
    ) -> DeadLetterJob:
        """Create a job on the dead tasks of a run queue."""
        assert self.tasks is not None
        job = await self.tasks.create_job(scope, kind, selection, task_ids=task_ids, rate=rate)
        self.on_job_created()
        return job

    async def get_job(self, scope: Scope, job_id: uuid.UUID) -> DeadLetterJob:
        return _require_job(job_id, await self._context.store.jobs.get(scope, job_id))

    async def cancel_job(self, scope: Scope, job_id: uuid.UUID) -> DeadLetterJob:
        """Stop a job after its current chunk; a job that has ended does not change."""
        return _require_job(job_id, await self._context.store.jobs.cancel(scope, job_id))

    async def lease_job(self, owner: uuid.UUID) -> DeadLetterJob | None:
        """Lease a job that no process executes; None if there is none."""
        return await self._context.store.jobs.lease(owner)

    async def advance_job(
        self, job: DeadLetterJob, owner: uuid.UUID, limit: int, max_scanned: int
    ) -> DeadLetterJob:
        """Execute one chunk and return the job afterwards. Encrypts dead letters that the next chunk needs
        so."""
        if job.run_queue:
            if self.tasks is None:
                raise ResourceBusy("This process has no run queues. Another broker must execute the job.")
            return await self.tasks.advance_job(job, owner, limit)
        advanced = await self._context.store.jobs.advance(
            job.id, owner, limit, max_scanned, job.kind == "requeue"
        )
        for scope, queue_id, queue in await self._context.store.jobs.find_queue_owners(advanced.requeued):
            self._notify_requeued(scope, queue_id, queue, advanced.requeued[queue_id])
        if advanced.unencrypted:
            await self._encrypt(advanced.unencrypted)
        return advanced.job

    async def release_job(self, job: DeadLetterJob, owner: uuid.UUID) -> None:
        await self._context.store.jobs.release(job.id, owner)

    async def fail_job(self, job: DeadLetterJob, owner: uuid.UUID, reason: str) -> None:
        await self._context.store.jobs.fail(job.id, owner, reason)

    async def _encrypt(self, dead_letter_ids: Sequence[int]) -> None:
        """Encrypt stored payloads. Raises KeyMissing without a key."""
        store = self._context.store.dead_letters
        payloads = await store.read_payloads(dead_letter_ids)
        encrypted = {
            dead_letter_id: self._context.cipher.encrypt(payload)
            for dead_letter_id, payload in payloads.items()
        }
        await store.replace_payloads(encrypted, payloads)

    def _notify_requeued(self, scope: Scope, queue_id: int, queue: str, messages: int) -> None:
        self._context.metrics.count_pushed(scope, queue_id, queue, messages)
        self._context.wakeups.notify(queue_id, messages)


def _unknown_dead_letter(dead_letter_id: int) -> UnknownMessage:
    return UnknownMessage(
        f"Dead letter {dead_letter_id} does not exist: it was requeued or deleted, or never existed.",
        letterId=str(dead_letter_id),
    )


def _require_job(job_id: uuid.UUID, job: DeadLetterJob | None) -> DeadLetterJob:
    if job is None:
        raise UnknownJob(
            f"Job {job_id} does not exist. GET /api/v1/jobs lists the jobs of the last 31 days.",
            jobId=str(job_id),
        )
    return job
