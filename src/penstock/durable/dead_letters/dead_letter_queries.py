"""Reading dead letters: page by page, one by one, counted, and grouped by what they died of."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from penstock.durable.pool import Database
from penstock.model import Scope

COUNT_UP_TO = 10_000
"""Totals that must be counted are not counted further."""
LOOK_AT = 10_000
"""Letters of a queue that are looked at for a text, per page."""

LETTER = """SELECT d.*, q.name AS queue, t.name AS partition, g.name AS group_name
            FROM dead_letters d JOIN queues q ON q.id = d.queue_id
            LEFT JOIN partitions t ON t.id = d.partition_id LEFT JOIN groups g ON g.id = d.group_id"""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters; what is None matches all. `end` is exclusive."""

    queue: str | None = None
    group: str | None = None
    partition: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    error: str | None = None
    """A part of the error, in any case."""
    error_key: uuid.UUID | None = None
    payload: str | None = None
    """A part of the payload as it is stored; a sealed one never matches."""

    @property
    def is_counted(self) -> bool:
        """Whether there is a running count, so that the total is exact."""
        return self.partition is None and self.start is None and self.end is None and not self.searches

    @property
    def searches(self) -> bool:
        """Whether letters have to be looked at to know whether they match."""
        return self.error is not None or self.payload is not None or self.error_key is not None


class Before(NamedTuple):
    """Where a page ended: the next one has what died before."""

    failed_at: datetime
    letter_id: int


@dataclass(frozen=True, slots=True)
class Letters:
    """A page. `looked_to` tells down to where all were looked at; None: as far as the page goes."""

    rows: list[Any]
    looked_to: Before | None


async def page(
    database: Database,
    scope: Scope,
    which: Filter,
    *,
    limit: int,
    offset: int = 0,
    before: Before | None = None,
    look_at: int = LOOK_AT,
) -> Letters:
    """A page, the latest first; rows as `dead_letters_v1` describes them."""
    found = await database.fetch(
        f"SELECT * FROM dead_letters_v1({_places(16)})",
        *_arguments(scope, which),
        which.error,
        which.error_key,
        which.payload,
        *(before or (None, None)),
        look_at,
        limit,
        offset,
    )
    rows = [row for row in found if row["message_id"] is not None]
    ends = [Before(row["failed_at"], row["id"]) for row in found if row["message_id"] is None]
    return Letters(rows, ends[0] if ends else None)


async def dead_letters(
    database: Database, scope: Scope, which: Filter, *, limit: int, offset: int
) -> list[Any]:
    """The rows of a page."""
    return (await page(database, scope, which, limit=limit, offset=offset)).rows


async def total(database: Database, scope: Scope, which: Filter) -> int:
    """How many there are: exact if `which.is_counted`, else at most COUNT_UP_TO. Knows no texts."""
    row = await database.fetchrow(
        "SELECT dead_letter_total_v1($1, $2, $3, $4, $5, $6, $7, $8, $9) AS total",
        *_arguments(scope, which),
        COUNT_UP_TO,
    )
    assert row is not None
    found: int = row["total"]
    return found


async def letter(database: Database, scope: Scope, letter_id: int) -> Any | None:
    """One dead letter with the names of its queue, partition and group."""
    return await database.fetchrow(
        f"{LETTER} WHERE d.id = $4 AND q.environment_id = environment_id_v1($1, $2, $3)",
        scope.organization,
        scope.project,
        scope.environment,
        letter_id,
    )


async def status(
    database: Database,
    scope: Scope,
    *,
    queue: str | None = None,
    group: str | None = None,
    limit: int | None = None,
    offset: int = 0,
    ages: bool = False,
) -> list[Any]:
    """How many letters each queue and group has; rows as `dead_letter_status_v1` describes them."""
    return await database.fetch(
        "SELECT * FROM dead_letter_status_v1($1, $2, $3, $4, $5, $6, $7, $8)",
        scope.organization,
        scope.project,
        scope.environment,
        queue,
        group,
        limit,
        offset,
        ages,
    )


async def error_groups(
    database: Database,
    scope: Scope,
    *,
    queue: str | None = None,
    group: str | None = None,
    hours: int = 24,
    limit: int,
    offset: int,
    now: datetime | None = None,
) -> list[Any]:
    """Letters by what they died of; rows as `dead_letter_error_groups_v1` describes them."""
    return await database.fetch(
        "SELECT * FROM dead_letter_error_groups_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        scope.organization,
        scope.project,
        scope.environment,
        queue,
        group,
        hours,
        limit,
        offset,
        now,
    )


async def error_patterns(database: Database, errors: Sequence[str]) -> dict[str, tuple[uuid.UUID, str]]:
    """The group that each error belongs to, and its name."""
    rows = await database.fetch(
        """SELECT e.error, md5(e.pattern)::uuid AS key, e.pattern
           FROM (SELECT error, error_pattern_v1(error) AS pattern FROM unnest($1::text[]) AS u (error)) e""",
        sorted(set(errors)),
    )
    return {row["error"]: (row["key"], row["pattern"]) for row in rows}


async def drift(database: Database) -> tuple[int, datetime | None]:
    """By how many letters recounts of the last 31 days found counts wrong, and when the last one ended."""
    row = await database.fetchrow(
        """SELECT (SELECT coalesce(sum(abs(counted - tallied)), 0)::bigint FROM dead_drifts) AS drift,
                  (SELECT recounted_at FROM dead_upkeep) AS recounted_at"""
    )
    assert row is not None
    return row["drift"], row["recounted_at"]


async def dead_letters_of(database: Database, partition_id: int, transaction_id: str) -> list[Any]:
    """The dead letters of one message, one per group that gave up on it."""
    return await database.fetch(
        """SELECT d.*, g.name AS group_name FROM dead_letters d LEFT JOIN groups g ON g.id = d.group_id
           WHERE d.partition_id = $1 AND d.transaction_id = $2 ORDER BY d.id""",
        partition_id,
        transaction_id,
    )


def _places(count: int) -> str:
    return ", ".join(f"${number}" for number in range(1, count + 1))


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
