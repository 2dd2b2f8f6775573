"""What queues no longer keep: messages past their retention, or past their time to live and never popped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.durable.maintenance_lock import Session
from penstock.model import Scope

PARTITIONS_PER_STEP = 100
POSITIONS_PER_STEP = 500


@dataclass(frozen=True, slots=True)
class LetGo:
    """Messages that a group (empty: a queue without groups) never finished and will not see."""

    scope: Scope
    queue_id: int
    queue: str
    group: str
    messages: int


async def retain(
    session: Session, after: int, now: datetime | None = None, limit: int = PARTITIONS_PER_STEP
) -> tuple[int | None, list[LetGo]]:
    """One step over the partitions above id `after`: the last one looked at (None past the end), what went.

    What was finished and went is not told; it changes no depth.
    """
    rows = await session.fetch("SELECT * FROM apply_retention_v1($1, $2, $3)", after, limit, now)
    last: int | None = rows[0]["last_partition_id"] if rows else None
    return last, await _named(session, rows)


async def expire_idle(
    session: Session, now: datetime | None = None, limit: int = POSITIONS_PER_STEP
) -> tuple[bool, list[LetGo]]:
    """One step over positions that wait with expired messages: whether there may be more, and what went."""
    rows = await session.fetch("SELECT * FROM expire_idle_positions_v1($1, $2)", limit, now)
    return sum(row["looked_at"] for row in rows) >= limit, await _named(session, rows)


async def _named(session: Session, rows: Sequence[Any]) -> list[LetGo]:
    totals = {(row["queue_id"], row["group_id"]): row["messages"] for row in rows if row["messages"]}
    if not totals:
        return []
    names = await session.fetch(
        """SELECT q.id AS queue_id, coalesce(g.id, 0) AS group_id, e.organization, e.project,
                  e.name AS environment, q.name AS queue, coalesce(g.name, '') AS group_name
           FROM unnest($1::bigint[], $2::bigint[]) AS w (queue_id, group_id)
           JOIN queues q ON q.id = w.queue_id
           JOIN environments e ON e.id = q.environment_id
           LEFT JOIN groups g ON g.id = w.group_id
           WHERE g.id IS NOT NULL OR w.group_id = 0""",
        [queue_id for queue_id, _ in totals],
        [group_id for _, group_id in totals],
    )
    return [
        LetGo(
            Scope(row["organization"], row["project"], row["environment"]),
            row["queue_id"],
            row["queue"],
            row["group_name"],
            totals[row["queue_id"], row["group_id"]],
        )
        for row in names
    ]
