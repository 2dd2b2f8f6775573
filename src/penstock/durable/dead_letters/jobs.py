"""Jobs on dead letters: noted, taken, advanced chunk by chunk, cancelled."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.durable.dead_letters.dead_letter_queries import Filter
from penstock.durable.maintenance_lock import yielding
from penstock.durable.pool import Database
from penstock.ids import new_id
from penstock.model import Scope

LEASE_MS = 15_000
LOOK_AHEAD = 20_000
"""Letters that are looked at to say beforehand how many a job will find."""
OPEN = ("waiting", "running")


@dataclass(frozen=True, slots=True)
class Advanced:
    """A job after a chunk, and letters that must be sealed before it can go on."""

    job: Any
    queued: dict[int, int]
    """how many went to each queue"""
    unsealed: list[int]


async def make(
    database: Database,
    scope: Scope,
    kind: str,
    which: Filter,
    *,
    letter_ids: Sequence[int] | None = None,
    rate: int | None = None,
    dry: bool = False,
    now: datetime | None = None,
) -> Any:
    """The job as it was noted, or as it would be. `total` is what it will find, as far as that is known."""
    return await database.fetchrow(
        "SELECT * FROM create_job_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, "
        "$16, $17, $18)",
        new_id(),
        scope.organization,
        scope.project,
        scope.environment,
        kind,
        which.queue,
        which.group,
        which.partition,
        which.start,
        which.end,
        which.error,
        which.error_key,
        which.payload,
        None if letter_ids is None else list(letter_ids),
        rate,
        LOOK_AHEAD,
        dry,
        now,
    )


async def make_of_tasks(
    database: Database,
    scope: Scope,
    kind: str,
    which: Filter,
    *,
    task_ids: Sequence[str] | None,
    rate: int | None,
    total: int,
    exact: bool,
) -> Any:
    """Note a job on the dead tasks of a run queue. What they are is in Redis; how far it is, here."""
    return await database.fetchrow(
        """WITH made AS (INSERT INTO environments (organization, project, name) VALUES ($1, $2, $3)
                        ON CONFLICT DO NOTHING RETURNING id)
           INSERT INTO jobs (id, environment_id, kind, queue, failed_from, failed_before, error, error_key,
                             payload, run_queue, task_ids, rate, total, total_is_exact)
           VALUES ($4, coalesce((SELECT id FROM made), environment_id_v1($1, $2, $3)), $5, $6, $7,
                   least($8::timestamptz, clock_timestamp()), $9, $10, $11, true, $12, $13, $14, $15)
           RETURNING *""",
        scope.organization,
        scope.project,
        scope.environment,
        new_id(),
        kind,
        which.queue,
        which.start,
        which.end,
        which.error,
        which.error_key,
        which.payload,
        None if task_ids is None else list(task_ids),
        rate,
        total,
        exact,
    )


async def hold(database: Database, job_id: uuid.UUID, owner: uuid.UUID) -> bool:
    """Renew the lease of a job; whether it is still the owner's and still to be done."""
    row = await database.fetchrow(
        """UPDATE jobs SET lease_until = clock_timestamp() + $3::int * interval '1 millisecond'
           WHERE id = $1 AND owner = $2 AND state = 'running' RETURNING id""",
        job_id,
        owner,
        LEASE_MS,
    )
    return row is not None


async def move_on(
    database: Database, job_id: uuid.UUID, *, looked_at: int, changed: int, at_task: str | None, ended: bool
) -> Any:
    """Note what was done of a job on tasks; the job afterwards. A cancelled one stays cancelled."""
    return await database.fetchrow(
        """UPDATE jobs SET looked_at = looked_at + $2, changed = changed + $3, at_task = $4,
                  state = CASE WHEN $5 AND state = 'running' THEN 'done' ELSE state END,
                  finished_at = CASE WHEN $5 THEN coalesce(finished_at, clock_timestamp())
                                     ELSE finished_at END
           WHERE id = $1 RETURNING *""",
        job_id,
        looked_at,
        changed,
        at_task,
        ended,
    )


async def scope_of(database: Database, job_id: uuid.UUID) -> Scope:
    row = await database.fetchrow(
        """SELECT e.organization, e.project, e.name FROM jobs j JOIN environments e ON e.id = j.environment_id
           WHERE j.id = $1""",
        job_id,
    )
    assert row is not None
    return Scope(row["organization"], row["project"], row["name"])


async def take(database: Database, owner: uuid.UUID) -> Any | None:
    """A job that nobody works on, leased to the owner; None if there is none."""
    return await database.fetchrow("SELECT * FROM take_job_v1($1, $2)", owner, LEASE_MS)


async def advance(
    database: Database, job_id: uuid.UUID, owner: uuid.UUID, limit: int, look_at: int, requeues: bool
) -> Advanced:
    """Do one chunk, all or nothing. Raises Busy when somebody holds a letter too long."""
    with yielding():
        row = await database.fetchrow(
            "SELECT (a.job).*, a.queue_ids, a.partition_ids, a.unsealed "
            "FROM advance_job_v1($1, $2, $3, $4, $5, $6) a",
            job_id,
            owner,
            limit,
            look_at,
            [new_id() for _ in range(limit)] if requeues else None,
            LEASE_MS,
        )
    assert row is not None
    queued: dict[int, int] = {}
    for queue_id in row["queue_ids"] or ():
        queued[queue_id] = queued.get(queue_id, 0) + 1
    return Advanced(row, queued, list(row["unsealed"] or ()))


async def names(database: Database, queue_ids: Collection[int]) -> list[tuple[Scope, int, str]]:
    """Where queues belong, their ids and names."""
    if not queue_ids:
        return []
    rows = await database.fetch(
        """SELECT e.organization, e.project, e.name AS environment, q.id, q.name
           FROM queues q JOIN environments e ON e.id = q.environment_id WHERE q.id = ANY ($1)""",
        list(queue_ids),
    )
    return [
        (Scope(row["organization"], row["project"], row["environment"]), row["id"], row["name"])
        for row in rows
    ]


async def let_go(database: Database, job_id: uuid.UUID, owner: uuid.UUID) -> None:
    """Give a job back, so that another process goes on at once."""
    await database.fetch(
        "UPDATE jobs SET lease_until = NULL WHERE id = $1 AND owner = $2 AND state = 'running'", job_id, owner
    )


async def fail(database: Database, job_id: uuid.UUID, owner: uuid.UUID, why: str) -> None:
    await database.fetch(
        """UPDATE jobs SET state = 'failed', note = $3, finished_at = clock_timestamp()
           WHERE id = $1 AND owner = $2 AND state = 'running'""",
        job_id,
        owner,
        why,
    )


async def cancel(database: Database, scope: Scope, job_id: uuid.UUID) -> Any | None:
    """The job, cancelled unless it had ended: no further chunk is begun. None if there is no such job."""
    await database.fetch(
        """UPDATE jobs SET state = 'cancelled', finished_at = clock_timestamp()
           WHERE id = $1 AND state = ANY ($2) AND environment_id = environment_id_v1($3, $4, $5)""",
        job_id,
        list(OPEN),
        scope.organization,
        scope.project,
        scope.environment,
    )
    return await get(database, scope, job_id)


async def get(database: Database, scope: Scope, job_id: uuid.UUID) -> Any | None:
    return await database.fetchrow(
        "SELECT * FROM jobs WHERE id = $1 AND environment_id = environment_id_v1($2, $3, $4)",
        job_id,
        scope.organization,
        scope.project,
        scope.environment,
    )


async def listed(database: Database, scope: Scope, *, limit: int, offset: int) -> list[Any]:
    """A page of jobs, the latest first."""
    return await database.fetch(
        """SELECT * FROM jobs WHERE environment_id = environment_id_v1($1, $2, $3)
           ORDER BY created_at DESC, id LIMIT $4 OFFSET $5""",
        scope.organization,
        scope.project,
        scope.environment,
        limit,
        offset,
    )
