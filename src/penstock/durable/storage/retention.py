"""Retention: drop messages past their retention time, or past their time to live and never popped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from penstock.durable.pool import Row, Session
from penstock.model import Scope

PARTITIONS_PER_STEP = 100
POSITIONS_PER_STEP = 500


@dataclass(frozen=True, slots=True)
class DroppedMessages:
    """Messages that a group (empty: a queue without groups) has not finished and will not receive."""

    scope: Scope
    queue_id: int
    queue: str
    group: str
    messages: int


async def apply_retention(
    session: Session, after: int, now: datetime | None = None, limit: int = PARTITIONS_PER_STEP
) -> tuple[int | None, list[DroppedMessages]]:
    """Run one step over the partitions above id `after`.

    Returns the last partition of the step (None past the end) and the dropped messages that were unfinished.
    Finished messages are not reported: dropping them changes no depth.
    """
    rows = await session.fetch("SELECT * FROM apply_retention_v1($1, $2, $3)", after, limit, now)
    last_partition_id: int | None = rows[0]["last_partition_id"] if rows else None
    return last_partition_id, await _add_names(session, rows)


async def expire_idle_positions(
    session: Session, now: datetime | None = None, limit: int = POSITIONS_PER_STEP
) -> tuple[bool, list[DroppedMessages]]:
    """Run one step over idle positions with expired messages; whether there may be more, and what was
    dropped."""
    rows = await session.fetch("SELECT * FROM expire_idle_positions_v1($1, $2)", limit, now)
    return sum(row["scanned"] for row in rows) >= limit, await _add_names(session, rows)


async def _add_names(session: Session, rows: Sequence[Row]) -> list[DroppedMessages]:
    totals = {(row["queue_id"], row["group_id"]): row["messages"] for row in rows if row["messages"]}
    if not totals:
        return []
    names = await session.fetch(
        "SELECT * FROM queue_group_names_v1($1, $2)",
        [queue_id for queue_id, _ in totals],
        [group_id for _, group_id in totals],
    )
    return [
        DroppedMessages(
            Scope(row["organization"], row["project"], row["environment"]),
            row["queue_id"],
            row["queue"],
            row["group_name"],
            totals[row["queue_id"], row["group_id"]],
        )
        for row in names
    ]
