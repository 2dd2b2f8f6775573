"""What consumers note about messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.durable.pool import Database
from penstock.model import Scope

COUNT_UP_TO = 1_000
"""The traces of a name are not counted further."""


@dataclass(frozen=True, slots=True)
class Trace:
    partition_id: int
    transaction_id: str
    group: str
    event: str
    names: Sequence[str]
    data: bytes


async def record(database: Database, scope: Scope, trace: Trace, now: datetime | None = None) -> int | None:
    """The new trace's id; None if the scope has no such partition."""
    row = await database.fetchrow(
        "SELECT record_trace_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS id",
        scope.organization,
        scope.project,
        scope.environment,
        trace.partition_id,
        trace.transaction_id,
        trace.group,
        trace.event,
        list(trace.names),
        trace.data,
        now,
    )
    return row["id"] if row else None


async def of_message(
    database: Database, partition_id: int, transaction_id: str, *, limit: int, offset: int
) -> list[Any]:
    """A page of a message's traces, the first one first."""
    return await database.fetch(
        """SELECT id, group_name, event, names, data, created_at FROM traces
           WHERE partition_id = $1 AND transaction_id = $2 ORDER BY id LIMIT $3 OFFSET $4""",
        partition_id,
        transaction_id,
        limit,
        offset,
    )


async def by_name(
    database: Database,
    scope: Scope,
    name: str,
    *,
    start: datetime | None,
    end: datetime | None,
    limit: int,
    offset: int,
) -> list[Any]:
    """A page of the traces of a name, the latest first; rows as `traces_by_name_v1` describes them."""
    return await database.fetch(
        "SELECT * FROM traces_by_name_v1($1, $2, $3, $4, $5, $6, $7, $8)",
        scope.organization,
        scope.project,
        scope.environment,
        name,
        start,
        end,
        limit,
        offset,
    )


async def names(database: Database, scope: Scope, prefix: str, *, limit: int, offset: int) -> list[Any]:
    """A page of names; rows as `trace_names_v1` describes them."""
    return await database.fetch(
        "SELECT * FROM trace_names_v1($1, $2, $3, $4, $5, $6, $7)",
        scope.organization,
        scope.project,
        scope.environment,
        prefix,
        limit,
        offset,
        COUNT_UP_TO,
    )
