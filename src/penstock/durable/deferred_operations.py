"""Operations: pushes and acks that are accepted now and carried out later, in order per lane."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import asyncpg

from penstock.durable.faults import QueueGone
from penstock.durable.log import Ack, Segment
from penstock.durable.maintenance_lock import Session
from penstock.durable.pool import Database
from penstock.errors import PenstockError
from penstock.model import Scope

PUSH, ACK = "push", "ack"
PRIORITIES = {PUSH: 5, ACK: 3}
"""Lower is more urgent: an ack ends a lease that others wait for."""

NIL = uuid.UUID(int=0)


class Undrainable(PenstockError):
    code = "undrainable"
    title = "An operation cannot be carried out"


@dataclass(slots=True)
class PushOperation:
    """The messages of one request for one partition."""

    id: uuid.UUID
    segment: Segment


@dataclass(slots=True)
class AckOperation:
    """The acks of one request for one partition."""

    id: uuid.UUID
    partition_id: int
    acks: list[Ack]


class Drained(NamedTuple):
    """What a drain did to one partition: as `drain_v1` describes its rows."""

    operations: int
    scope: Scope
    queue_id: int
    queue: str
    partition_id: int
    group: str
    outcome: str
    messages: int
    run_ms: list[int] | None


class Depth(NamedTuple):
    """Operations that wait, and how many left their lanes since ever."""

    waiting: int
    finished: int


async def spill_pushes(
    database: Database, operations: Sequence[PushOperation], reason: str, now: datetime | None = None
) -> list[int | None]:
    """Accept pushes; each one's place in its lane from 1, or None where the partition is gone."""
    return await _spill_pushes(database, operations, reason, now)


async def _spill_pushes(
    connection: Any, operations: Sequence[PushOperation], reason: str, now: datetime | None
) -> list[int | None]:
    segments = [operation.segment for operation in operations]
    row = await connection.fetchrow(
        "SELECT defer_pushes_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS places",
        [operation.id for operation in operations],
        [segment.partition_id for segment in segments],
        reason,
        PRIORITIES[PUSH],
        [len(segment.message_ids) for segment in segments],
        [m for segment in segments for m in segment.message_ids],
        [t for segment in segments for t in segment.transaction_ids],
        [t for segment in segments for t in segment.trace_ids],
        [p for segment in segments for p in segment.payloads],
        now,
    )
    places: list[int | None] = row["places"]
    return places


async def take_over(
    database: Database, journal_id: uuid.UUID, position: int, operations: Sequence[PushOperation], reason: str
) -> Sequence[int | None]:
    """Accept what a journal has up to `position`, once: if it was taken before, nothing happens.

    Raises QueueGone if a partition is gone, and nothing was accepted then.
    """
    async with database.connection() as connection, connection.transaction():
        known = await connection.fetchval(
            """INSERT INTO journals AS j (id, position) VALUES ($1, $2)
               ON CONFLICT (id) DO UPDATE SET position = excluded.position, taken_at = now()
               WHERE j.position < excluded.position RETURNING 1""",
            journal_id,
            position,
        )
        if known is None:
            return []
        places = await _spill_pushes(connection, operations, reason, None) if operations else []
        if None in places:
            raise QueueGone("a queue was deleted meanwhile; look its partitions up again")
        return places


async def journal_position(database: Database, journal_id: uuid.UUID) -> int:
    """How far a journal was taken over; 0 if nothing of it was."""
    row = await database.fetchrow("SELECT position FROM journals WHERE id = $1", journal_id)
    return int(row["position"]) if row else 0


async def spill_acks(
    database: Database,
    operations: Sequence[AckOperation],
    reason: str,
    hold_ms: int,
    now: datetime | None = None,
) -> tuple[list[int | None], set[int]]:
    """Accept acks; each operation's place in its lane, or None if nothing of it was accepted; and which acks,
    of all in their order from 0, were refused because their lease is not in force."""
    acks = [ack for operation in operations for ack in operation.acks]
    row = await database.fetchrow(
        "SELECT * FROM defer_acks_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        [operation.id for operation in operations],
        [operation.partition_id for operation in operations],
        reason,
        PRIORITIES[ACK],
        [len(operation.acks) for operation in operations],
        [ack.group_id for ack in acks],
        [ack.lease_id for ack in acks],
        [ack.transaction_id for ack in acks],
        [ack.status for ack in acks],
        [ack.error for ack in acks],
        hold_ms,
        now,
    )
    assert row is not None
    return row["places"], {item - 1 for item in row["refused_items"] or ()}


async def drain(
    database: Database, kind: str, *, lanes: int, operations: int, now: datetime | None = None
) -> list[Drained]:
    """Carry out what is most urgent, all or nothing: up to so many operations of each of so many lanes.

    Raises Undrainable if one of them cannot be carried out.
    """
    try:
        rows = await database.fetch("SELECT * FROM drain_v1($1, $2, $3, $4)", kind, lanes, operations, now)
    except asyncpg.PostgresError as error:
        raise Undrainable(f"operations cannot be carried out ({error})") from error
    return [_drained(row) for row in rows]


async def drain_carefully(
    database: Database,
    kind: str,
    *,
    lanes: int,
    attempts: int,
    backoff_ms: int,
    hold: bool,
    now: datetime | None = None,
) -> list[Drained]:
    """The same one by one: what cannot be carried out fails alone, is tried again, and parked at last."""
    rows = await database.fetch(
        "SELECT * FROM drain_one_by_one_v1($1, $2, $3, $4, $5, $6)",
        kind,
        lanes,
        attempts,
        backoff_ms,
        hold,
        now,
    )
    return [_drained(row) for row in rows]


def _drained(row: Any) -> Drained:
    scope = Scope(row["organization"], row["project"], row["environment"])
    return Drained(row["operations"], scope, *list(row)[4:])


async def depths(database: Database) -> dict[str, Depth]:
    """Per kind, at the same cost however many wait."""
    rows = await database.fetch(
        """SELECT kind, sum(accepted - finished)::bigint AS waiting, sum(finished)::bigint AS finished
           FROM operation_tallies GROUP BY kind"""
    )
    found = {row["kind"]: Depth(row["waiting"], row["finished"]) for row in rows}
    return {kind: found.get(kind, Depth(0, 0)) for kind in (PUSH, ACK)}


async def next_due_s(database: Session) -> float | None:
    """Seconds until a lane may be drained, 0 if one may be now; None if none waits."""
    row = await database.fetchrow(
        """SELECT extract(epoch FROM min(greatest(not_before, now()) - now()))::float8 AS delay_s
           FROM lanes WHERE not_before < 'infinity'"""
    )
    return row["delay_s"] if row else None


async def operation(database: Database, scope: Scope, operation_id: uuid.UUID) -> Any:
    """The operation as `operation_v1` describes it; None if there is none."""
    return await database.fetchrow("SELECT * FROM operation_v1($1, $2, $3, $4)", *_names(scope), operation_id)


async def operations(
    database: Database,
    scope: Scope,
    *,
    queue: str | None,
    status: str | None,
    after: uuid.UUID | None,
    limit: int,
) -> list[Any]:
    """A page, the oldest first, as `operations_v1` describes it."""
    return await database.fetch(
        "SELECT * FROM operations_v1($1, $2, $3, $4, $5, $6, $7)",
        *_names(scope),
        queue,
        status,
        after or NIL,
        limit,
    )


async def statistics(database: Database) -> list[Any]:
    """Per kind, priority and status: how many, the oldest and newest, and the average time until they were
    done. Of those that are done, the last five minutes."""
    return await database.fetch(
        """SELECT kind, priority, status, count(*) AS operations, min(accepted_at) AS oldest,
                  max(accepted_at) AS newest,
                  avg(extract(epoch FROM coalesce(finished_at, now()) - accepted_at))::float8 AS average_s
           FROM (SELECT * FROM operations WHERE status = 'pending'
                 UNION ALL SELECT * FROM operations WHERE status = 'failed'
                 UNION ALL SELECT * FROM operations
                           WHERE status = 'completed' AND finished_at > now() - interval '5 minutes') o
           GROUP BY kind, priority, status ORDER BY priority, kind, status"""
    )


async def retry(database: Database, operation_id: uuid.UUID) -> str:
    """`retried`; and without an effect: `unknown` or `not_failed`."""
    row = await database.fetchrow("SELECT retry_operation_v1($1) AS outcome", operation_id)
    assert row is not None
    return str(row["outcome"])


async def drop(database: Database, operation_id: uuid.UUID) -> str:
    """Forget an operation; the status it had, or `unknown`."""
    row = await database.fetchrow("SELECT drop_operation_v1($1) AS status", operation_id)
    assert row is not None
    return str(row["status"])


async def forget_finished(database: Session, age_s: float, limit: int) -> int:
    """Forget operations that were done longer ago than that; how many went."""
    row = await database.fetchrow(
        """WITH old AS (
               SELECT id FROM operations
               WHERE status = 'completed' AND finished_at < now() - $1 * interval '1 second'
               ORDER BY finished_at LIMIT $2 FOR UPDATE SKIP LOCKED
           ), gone AS (DELETE FROM operations o USING old WHERE o.id = old.id RETURNING 1)
           SELECT count(*) AS gone FROM gone""",
        age_s,
        limit,
    )
    return int(row["gone"])


def _names(scope: Scope) -> tuple[str, str, str]:
    return scope.organization, scope.project, scope.environment
