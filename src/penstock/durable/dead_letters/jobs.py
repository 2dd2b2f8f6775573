"""Jobs over many dead letters: create, lease, advance batch by batch, cancel."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from penstock.durable.cluster_lock import translate_lock_timeouts
from penstock.durable.dead_letters.dead_letter_store import DeadLetterFilter
from penstock.durable.pool import Session, fetch_all, fetch_one, fetch_value
from penstock.ids import new_id
from penstock.model import Scope

LEASE_MS = 15_000
MAX_PREVIEWED = 20_000
"""Dead letters that are read to say in advance how many a job will change."""


class JobSample(NamedTuple):
    """Requeue `size` dead letters first, and the rest if `share` of them are acked within `timeout_s`."""

    size: int
    share: float = 1.0
    timeout_s: int = 600


class TaskSample(NamedTuple):
    """A task of a sample, and when it had died before the job requeued it."""

    task_id: str
    dead_ms: int


class TaskSampleOutcome(NamedTuple):
    """What became of a task of a sample: `acked` or `dead`, with its error."""

    task_id: str
    outcome: str
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterJob:
    """A row of `jobs`. `subject`: the job changes dead letters, messages of a durable queue, or tasks."""

    id: uuid.UUID
    environment_id: int
    kind: str
    subject: str
    state: str
    queue: str | None
    group_name: str | None
    partition: str | None
    failed_from: datetime | None
    failed_before: datetime
    error: str | None
    error_key: uuid.UUID | None
    payload: str | None
    dead_letter_ids: list[int] | None
    run_queue: bool
    task_ids: list[str] | None
    task_cursor: str | None
    task_state: str | None
    reason: str | None
    rate: int | None
    sample_size: int | None
    sample_share: float | None
    sample_timeout_s: int | None
    sample_ends_at: datetime | None
    sample_taken: int
    sample_acked: int
    sample_dead: int
    sample_passed: bool | None
    total: int
    total_is_exact: bool
    scanned: int
    changed: int
    skipped: int
    cursor_queue_id: int
    cursor_group_id: int
    cursor_failed_at: datetime
    cursor_dead_letter_id: int
    cursor_partition_id: int
    cursor_offset: int
    note: str | None
    owner: uuid.UUID | None
    lease_expires_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    created_by: str | None

    @property
    def awaits_sample(self) -> bool:
        """Whether the job has a sample that is not decided yet."""
        return self.sample_size is not None and self.sample_passed is None

    @property
    def selection(self) -> DeadLetterFilter:
        """The filter of the job."""
        return DeadLetterFilter(
            queue=self.queue,
            group=self.group_name,
            partition=self.partition,
            start=self.failed_from,
            end=self.failed_before,
            error=self.error,
            error_key=self.error_key,
            payload=self.payload,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkChange:
    """A job to create on messages of a durable queue, or on waiting tasks of a run queue.

    `kind` is `purge`, which deletes them, or `dead_letter`, which moves them to the dead letters with
    `reason` as their error. `start` and `end` are times of the push; `end` is exclusive.
    """

    kind: str
    queue: str
    group: str | None = None
    partition: str | None = None
    task_state: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    payload: str | None = None
    reason: str | None = None
    rate: int | None = None
    created_by: str = "local"

    @property
    def details(self) -> tuple[object, ...]:
        """The parameters that jobs on messages and on tasks have in common."""
        return self.start, self.end, self.payload, self.reason, self.rate, self.created_by


class AdvancedMessageJob(NamedTuple):
    """A job on messages after a batch, with the queue and the number of its messages that were changed."""

    job: DeadLetterJob
    queue_id: int | None
    changed: int


@dataclass(frozen=True, slots=True)
class AdvancedJob:
    """A job after a batch, and the dead letters that must be encrypted before it can continue."""

    job: DeadLetterJob
    requeued: dict[int, int]
    """How many messages went to each queue id."""
    unencrypted: list[int]


class QueueOwner(NamedTuple):
    """A queue's id, name and scope."""

    scope: Scope
    queue_id: int
    queue: str


class JobStore:
    """Stores jobs and their progress."""

    def __init__(self, session: Session, *, lease_ms: int = LEASE_MS) -> None:
        self._session = session
        self._lease_ms = lease_ms

    async def create(
        self,
        scope: Scope,
        kind: str,
        selection: DeadLetterFilter,
        *,
        dead_letter_ids: Sequence[int] | None = None,
        rate: int | None = None,
        sample: JobSample | None = None,
        created_by: str = "local",
        dry_run: bool = False,
        now: datetime | None = None,
    ) -> DeadLetterJob:
        """Create a job, or with `dry_run` only say what it would be. `total` is an estimate unless exact."""
        return await self._change_job(
            "SELECT * FROM create_job_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, "
            "$16, $17, $18, $19, $20, $21, $22)",
            new_id(),
            *scope,
            kind,
            selection.queue,
            selection.group,
            selection.partition,
            selection.start,
            selection.end,
            selection.error,
            selection.error_key,
            selection.payload,
            None if dead_letter_ids is None else list(dead_letter_ids),
            rate,
            *(sample or (None, None, None)),
            created_by,
            MAX_PREVIEWED,
            dry_run,
            now,
        )

    async def create_for_tasks(
        self,
        scope: Scope,
        kind: str,
        selection: DeadLetterFilter,
        *,
        task_ids: Sequence[str] | None,
        rate: int | None,
        sample: JobSample | None = None,
        created_by: str = "local",
        total: int,
        total_is_exact: bool,
    ) -> DeadLetterJob:
        """Create a job on the dead tasks of a run queue. The tasks are in Redis; the progress is here."""
        return await self._change_job(
            "SELECT * FROM create_task_job_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, "
            "$15, $16, $17, $18, $19)",
            *scope,
            new_id(),
            kind,
            selection.queue,
            selection.start,
            selection.end,
            selection.error,
            selection.error_key,
            selection.payload,
            None if task_ids is None else list(task_ids),
            rate,
            *(sample or (None, None, None)),
            created_by,
            total,
            total_is_exact,
        )

    async def create_for_messages(
        self, scope: Scope, change: BulkChange, *, dry_run: bool = False, now: datetime | None = None
    ) -> DeadLetterJob:
        """Create a job on messages of a durable queue, or with `dry_run` only say what it would be."""
        return await self._change_job(
            "SELECT * FROM create_message_job_v1"
            "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)",
            *scope,
            new_id(),
            change.kind,
            change.queue,
            change.group,
            change.partition,
            *change.details,
            MAX_PREVIEWED,
            dry_run,
            now,
        )

    async def create_for_waiting_tasks(
        self, scope: Scope, change: BulkChange, *, total: int, total_is_exact: bool
    ) -> DeadLetterJob:
        """Create a job on waiting tasks of a run queue. The tasks are in Redis; the progress is here."""
        return await self._change_job(
            "SELECT * FROM create_waiting_task_job_v1"
            "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
            *scope,
            new_id(),
            change.kind,
            change.queue,
            change.task_state,
            *change.details,
            total,
            total_is_exact,
        )

    async def lease(self, owner: uuid.UUID) -> DeadLetterJob | None:
        """Lease a job that no process works on; None if there is none."""
        return await fetch_one(
            self._session, DeadLetterJob, "SELECT * FROM lease_job_v1($1, $2)", owner, self._lease_ms
        )

    async def renew_lease(self, job_id: uuid.UUID, owner: uuid.UUID) -> bool:
        """Renew the lease of a job; whether the owner still holds it and it still runs."""
        return await fetch_value(
            self._session, bool, "SELECT renew_job_lease_v1($1, $2, $3)", job_id, owner, self._lease_ms
        )

    async def release(self, job_id: uuid.UUID, owner: uuid.UUID) -> None:
        """Release a job, so that another process continues it at once."""
        await self._session.fetch("SELECT release_job_v1($1, $2)", job_id, owner)

    async def advance(
        self, job_id: uuid.UUID, owner: uuid.UUID, limit: int, max_scanned: int, requeues: bool
    ) -> AdvancedJob:
        """Process one batch, all or nothing. Raises ResourceBusy if a dead letter is locked for too long."""
        with translate_lock_timeouts():
            row = await self._session.fetchrow(
                "SELECT * FROM advance_job_v1($1, $2, $3, $4, $5, $6)",
                job_id,
                owner,
                limit,
                max_scanned,
                [new_id() for _ in range(limit)] if requeues else None,
                self._lease_ms,
            )
        assert row is not None
        requeued: dict[int, int] = {}
        for queue_id in row["queue_ids"] or ():
            requeued[queue_id] = requeued.get(queue_id, 0) + 1
        return AdvancedJob(DeadLetterJob(**row["job"]), requeued, list(row["unsealed"] or ()))

    async def advance_for_messages(
        self, job_id: uuid.UUID, owner: uuid.UUID, limit: int, max_scanned: int
    ) -> AdvancedMessageJob:
        """Process one batch, all or nothing. Raises ResourceBusy if a message is locked for too long."""
        with translate_lock_timeouts():
            row = await self._session.fetchrow(
                "SELECT * FROM advance_message_job_v1($1, $2, $3, $4, $5)",
                job_id,
                owner,
                limit,
                max_scanned,
                self._lease_ms,
            )
        assert row is not None
        return AdvancedMessageJob(DeadLetterJob(**row["job"]), row["queue_id"], row["changed"])

    async def advance_for_tasks(
        self,
        job_id: uuid.UUID,
        *,
        scanned: int,
        changed: int,
        skipped: int = 0,
        task_cursor: str | None,
        ended: bool,
    ) -> DeadLetterJob:
        """Record the progress of a job on tasks; the job afterwards. A cancelled job stays cancelled."""
        return await self._change_job(
            "SELECT * FROM advance_task_job_v1($1, $2, $3, $4, $5, $6)",
            job_id,
            scanned,
            changed,
            skipped,
            task_cursor,
            ended,
        )

    async def add_task_samples(
        self,
        job_id: uuid.UUID,
        samples: Sequence[TaskSample],
        *,
        scanned: int,
        task_cursor: str | None,
        ended: bool,
    ) -> DeadLetterJob:
        """Add tasks to the sample of a job before they are requeued; return the job afterwards."""
        return await self._change_job(
            "SELECT * FROM add_task_samples_v1($1, $2, $3, $4, $5, $6)",
            job_id,
            [sample.task_id for sample in samples],
            [sample.dead_ms for sample in samples],
            scanned,
            task_cursor,
            ended,
        )

    async def list_pending_samples(self, job_id: uuid.UUID) -> list[TaskSample]:
        """Return the tasks of a sample whose outcome is not recorded yet."""
        return await fetch_all(self._session, TaskSample, "SELECT * FROM pending_task_samples_v1($1)", job_id)

    async def record_task_outcomes(
        self, job_id: uuid.UUID, outcomes: Sequence[TaskSampleOutcome], requeued: int
    ) -> DeadLetterJob:
        """Record what became of tasks of a sample, and decide the sample; return the job afterwards."""
        return await self._change_job(
            "SELECT * FROM record_task_outcomes_v1($1, $2, $3, $4, $5, $6)",
            job_id,
            [outcome.task_id for outcome in outcomes],
            [outcome.outcome for outcome in outcomes],
            [outcome.error for outcome in outcomes],
            requeued,
            self._lease_ms,
        )

    async def _change_job(self, query: str, *arguments: object) -> DeadLetterJob:
        job = await fetch_one(self._session, DeadLetterJob, query, *arguments)
        assert job is not None
        return job

    async def fail(self, job_id: uuid.UUID, owner: uuid.UUID, reason: str) -> None:
        """End a job as failed."""
        await self._session.fetch("SELECT fail_job_v1($1, $2, $3)", job_id, owner, reason)

    async def cancel(self, scope: Scope, job_id: uuid.UUID) -> DeadLetterJob | None:
        """Cancel a job unless it has ended, and return it: no further batch starts. None if it is unknown."""
        await self._session.fetch("SELECT cancel_job_v1($1, $2, $3, $4)", *scope, job_id)
        return await self.get(scope, job_id)

    async def get(self, scope: Scope, job_id: uuid.UUID) -> DeadLetterJob | None:
        """Return the job of an id, or None."""
        return await fetch_one(
            self._session, DeadLetterJob, "SELECT * FROM find_job_v1($1, $2, $3, $4)", *scope, job_id
        )

    async def list_jobs(self, scope: Scope, *, limit: int, offset: int) -> list[DeadLetterJob]:
        """Return a page of jobs, the latest first."""
        return await fetch_all(
            self._session,
            DeadLetterJob,
            "SELECT * FROM jobs_v1($1, $2, $3, $4, $5)",
            *scope,
            limit,
            offset,
        )

    async def get_scope(self, job_id: uuid.UUID) -> Scope:
        """Return the scope that a job belongs to."""
        scope = await fetch_one(self._session, Scope, "SELECT * FROM job_scope_v1($1)", job_id)
        assert scope is not None
        return scope

    async def find_queue_owners(self, queue_ids: Collection[int]) -> list[QueueOwner]:
        """Return the scopes and names of queues, without those that were deleted."""
        if not queue_ids:
            return []
        rows = await self._session.fetch("SELECT * FROM queue_names_v1($1)", list(queue_ids))
        return [
            QueueOwner(
                Scope(row["organization"], row["project"], row["environment"]), row["queue_id"], row["queue"]
            )
            for row in rows
        ]
