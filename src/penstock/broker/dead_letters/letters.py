"""Dead letters in an operator's hands: requeued and deleted one by one, or many at a time by jobs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from penstock.broker.context import BrokerContext
from penstock.broker.dead_letters.task_letters import DeadTasks
from penstock.durable.dead_letters.dead_letter_store import DeadLetterFilter
from penstock.durable.maintenance_lock import ResourceBusy
from penstock.errors import PenstockError, QueueFull, UnknownMessage
from penstock.model import Scope

SEAL_ATTEMPTS = 3


class UnknownJob(PenstockError):
    code = "unknown_job"
    status = 404
    title = "There is no such job"


class DeadLetters:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.tasks: DeadTasks | None = None
        """Dead tasks of run queues, where there are run queues."""
        self.wake: Callable[[], None] = lambda: None
        """Called when there is a job to do."""

    async def requeue(self, scope: Scope, letter_id: int) -> tuple[Any, Any]:
        """Push one dead message again, for the group that gave up on it; its letter, and its new place."""
        letter = await self.letter(scope, letter_id)
        for _ in range(SEAL_ATTEMPTS):
            rows = await self._context.store.dead_letters.requeue([letter_id])
            if not rows:
                raise _unknown(letter_id)
            match rows[0].outcome:
                case "queued":
                    self.queued(scope, rows[0].queue_id, letter.queue, 1)
                    return letter, rows[0]
                case "queue_full":
                    raise QueueFull(
                        f"queue {letter.queue!r} is full: it has reached its maxSize",
                        queue=letter.queue,
                    )
                case "behind":
                    raise ResourceBusy(
                        "pushes to the partition wait for their turn and come first; try again shortly"
                    )
                case "unsealed":
                    await self.seal([letter_id])
        raise ResourceBusy("the letter changes all the time; try again")

    async def delete(
        self, scope: Scope, letter_id: int, *, queue: str | None = None, group: str | None = None
    ) -> None:
        """Delete one dead letter, whatever its attempts. UnknownMessage if it is not there, or elsewhere."""
        if not await self._context.store.dead_letters.delete(scope, letter_id, queue=queue, group=group):
            raise _unknown(letter_id)

    async def letter(self, scope: Scope, letter_id: int) -> Any:
        found = await self._context.store.dead_letters.get(scope, letter_id)
        if found is None:
            raise _unknown(letter_id)
        return found

    async def make_job(
        self,
        scope: Scope,
        kind: str,
        which: DeadLetterFilter,
        *,
        letter_ids: Sequence[int] | None = None,
        rate: int | None = None,
        dry: bool = False,
    ) -> Any:
        """The job, to be carried out by any broker; with `dry` only what it would find."""
        job = await self._context.store.jobs.create(
            scope, kind, which, dead_letter_ids=letter_ids, rate=rate, dry_run=dry
        )
        if not dry:
            self.wake()
        return job

    async def make_task_job(
        self,
        scope: Scope,
        kind: str,
        which: DeadLetterFilter,
        *,
        task_ids: Sequence[str] | None = None,
        rate: int | None = None,
    ) -> Any:
        """The same for the dead tasks of a run queue."""
        assert self.tasks is not None
        job = await self.tasks.make_job(scope, kind, which, task_ids=task_ids, rate=rate)
        self.wake()
        return job

    async def job(self, scope: Scope, job_id: uuid.UUID) -> Any:
        return _known(job_id, await self._context.store.jobs.get(scope, job_id))

    async def cancel(self, scope: Scope, job_id: uuid.UUID) -> Any:
        """Stop a job behind the chunk under way; one that has ended stays as it is."""
        return _known(job_id, await self._context.store.jobs.cancel(scope, job_id))

    async def take(self, owner: uuid.UUID) -> Any | None:
        return await self._context.store.jobs.lease(owner)

    async def advance(self, job: Any, owner: uuid.UUID, limit: int, look_at: int) -> Any:
        """Do one chunk of a job; the job afterwards. What has to be sealed first is, for the next chunk."""
        if job.run_queue:
            if self.tasks is None:
                raise ResourceBusy("this process has no run queues")
            return await self.tasks.advance(job, owner, limit)
        done = await self._context.store.jobs.advance(
            job.id, owner, limit, look_at, job.kind == "requeue"
        )
        for scope, queue_id, queue in await self._context.store.jobs.find_queue_owners(done.requeued):
            self.queued(scope, queue_id, queue, done.requeued[queue_id])
        if done.unencrypted:
            await self.seal(done.unencrypted)
        return done.job

    async def let_go(self, job: Any, owner: uuid.UUID) -> None:
        await self._context.store.jobs.release(job.id, owner)

    async def fail(self, job: Any, owner: uuid.UUID, why: str) -> None:
        await self._context.store.jobs.fail(job.id, owner, why)

    async def seal(self, letter_ids: Sequence[int]) -> None:
        """Seal letters at rest. Raises KeyMissing without a key."""
        plain = await self._context.store.dead_letters.read_payloads(letter_ids)
        sealed = {letter_id: self._context.cipher.encrypt(payload) for letter_id, payload in plain.items()}
        await self._context.store.dead_letters.replace_payloads(sealed, plain)

    def queued(self, scope: Scope, queue_id: int, queue: str, messages: int) -> None:
        self._context.metrics.pushed(scope, queue_id, queue, messages)
        self._context.wakeups.notify(queue_id, messages)


def _unknown(letter_id: int) -> UnknownMessage:
    return UnknownMessage(
        f"there is no dead letter {letter_id}: it was requeued or deleted, or never was",
        letterId=str(letter_id),
    )


def _known(job_id: uuid.UUID, found: Any | None) -> Any:
    if found is None:
        raise UnknownJob(
            f"there is no job {job_id}; GET /api/v1/jobs lists those of the last 31 days", jobId=str(job_id)
        )
    return found
