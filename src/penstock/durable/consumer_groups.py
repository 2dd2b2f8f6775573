"""Consumer groups: what each has left, where it stands, moving it, deleting it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.durable.pool import Database
from penstock.model import Scope

SEEK_AT_ONCE = 500
"""Partitions whose rows are locked together while a group is moved."""


@dataclass(slots=True)
class Moved:
    """What a seek did: partitions looked at and moved, and by how many messages forward and back."""

    partitions: int = 0
    moved: int = 0
    forward: int = 0
    back: int = 0


async def groups(
    database: Database,
    scope: Scope,
    *,
    group: str | None = None,
    queue: str | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[Any]:
    """A page of groups by name and queue; rows as `groups_v1` describes them."""
    return await database.fetch(
        "SELECT * FROM groups_v1($1, $2, $3, $4, $5, $6, $7)",
        scope.organization,
        scope.project,
        scope.environment,
        group,
        queue,
        limit,
        offset,
    )


async def find_groups(database: Database, scope: Scope, group: str, queue: str | None = None) -> list[Any]:
    """Every queue a group consumes, or one: rows of id, queue_id, queue, subscription and created_at."""
    return await database.fetch(
        """SELECT g.id, g.queue_id, q.name AS queue, g.subscription, g.created_at
           FROM groups g JOIN queues q ON q.id = g.queue_id
           WHERE q.environment_id = environment_id_v1($1, $2, $3) AND g.name = $4
             AND ($5::text IS NULL OR q.name = $5) ORDER BY q.name""",
        scope.organization,
        scope.project,
        scope.environment,
        group,
        queue,
    )


async def group_partitions(database: Database, group_id: int, *, limit: int, offset: int) -> list[Any]:
    """A page of a group's positions by partition; rows as `group_partitions_v1` describes them."""
    return await database.fetch("SELECT * FROM group_partitions_v1($1, $2, $3)", group_id, limit, offset)


async def lagging(
    database: Database, scope: Scope, before: datetime, *, limit: int, offset: int
) -> list[Any]:
    """Positions with something unfinished that was pushed before a moment; rows as `lagging_positions_v1` has them."""
    return await database.fetch(
        "SELECT * FROM lagging_positions_v1($1, $2, $3, $4, $5, $6)",
        scope.organization,
        scope.project,
        scope.environment,
        before,
        limit,
        offset,
    )


async def seek(database: Database, group_id: int, target: str, partition_id: int | None = None) -> Moved:
    """Move a group to `all`, `new` or a moment in ISO 8601, in every partition of its queue or in one.

    Goes partition by partition in bounded steps; each is right at any time. Interrupted, some have moved
    and others have not, and repeating it moves them all.
    """
    done = Moved()
    after = -1
    while True:
        row = await database.fetchrow(
            "SELECT * FROM seek_group_v1($1, $2, $3, $4, $5)",
            group_id,
            target,
            partition_id,
            after,
            SEEK_AT_ONCE,
        )
        assert row is not None
        if row["last_id"] is None:
            return done
        after = row["last_id"]
        done.partitions += row["partitions"]
        done.moved += row["moved"]
        done.forward += row["forward"]
        done.back += row["back"]


async def subscribe(database: Database, group_id: int, subscription: str) -> None:
    """Note where a group starts."""
    await database.fetch("UPDATE groups SET subscription = $2 WHERE id = $1", group_id, subscription)


async def delete_group(database: Database, group_id: int) -> int:
    """Delete a group of one queue; in how many partitions it had a position. Its dead letters stay."""
    row = await database.fetchrow("SELECT delete_group_v1($1) AS positions", group_id)
    assert row is not None
    positions: int = row["positions"]
    return positions


async def groups_of(database: Database, queue_id: int) -> list[Any]:
    """The groups of a queue: rows of id and name."""
    return await database.fetch("SELECT id, name FROM groups WHERE queue_id = $1 ORDER BY name", queue_id)
