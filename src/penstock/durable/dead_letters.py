"""Reading dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.durable.pool import Database
from penstock.model import Scope

COUNT_UP_TO = 10_000
"""Totals that must be counted are not counted further."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters; what is None matches all. `end` is exclusive."""

    queue: str | None = None
    group: str | None = None
    partition: str | None = None
    start: datetime | None = None
    end: datetime | None = None

    @property
    def is_counted(self) -> bool:
        """Whether there is a running count, so that the total is exact."""
        return self.partition is None and self.start is None and self.end is None


async def dead_letters(
    database: Database, scope: Scope, which: Filter, *, limit: int, offset: int
) -> list[Any]:
    """A page, the latest first; rows as `dead_letters_v1` describes them."""
    return await database.fetch(
        "SELECT * FROM dead_letters_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        *_arguments(scope, which),
        limit,
        offset,
    )


async def total(database: Database, scope: Scope, which: Filter) -> int:
    """How many there are: exact if `which.is_counted`, else at most COUNT_UP_TO."""
    row = await database.fetchrow(
        "SELECT dead_total_v1($1, $2, $3, $4, $5, $6, $7, $8, $9) AS total",
        *_arguments(scope, which),
        COUNT_UP_TO,
    )
    assert row is not None
    found: int = row["total"]
    return found


async def dead_letters_of(database: Database, partition_id: int, transaction_id: str) -> list[Any]:
    """The dead letters of one message, one per group that gave up on it."""
    return await database.fetch(
        """SELECT d.*, g.name AS group_name FROM dead_letters d LEFT JOIN groups g ON g.id = d.group_id
           WHERE d.partition_id = $1 AND d.transaction_id = $2 ORDER BY d.id""",
        partition_id,
        transaction_id,
    )


def _arguments(scope: Scope, which: Filter) -> list[Any]:
    return [
        scope.organization,
        scope.project,
        scope.environment,
        which.queue,
        which.group,
        which.partition,
        which.start,
        which.end,
    ]
