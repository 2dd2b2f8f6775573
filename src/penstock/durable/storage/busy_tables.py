"""Rewrite busy tables whose dead rows vacuum cannot remove.

While something holds the vacuum horizon, every update of a busy row leaves a dead version that every later
read of the row visits. A rewrite copies the live rows into new files, so the horizon does not matter.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from penstock.durable.pool import Session

logger = logging.getLogger(__name__)

LOCK_TIMEOUT_MS = 50
"""Operations wait behind the request for the lock, so it gives up soon and is repeated later."""


@dataclass(frozen=True, slots=True)
class BusyTable:
    """A table that changes with every operation.

    `rewritten_column` is a bigint column without an index: rewriting it rewrites the table. The table is
    rewritten when it has grown by `min_growth_bytes` and by `min_growth_ratio` of its size.
    """

    name: str
    rewritten_column: str
    min_growth_bytes: int
    min_growth_ratio: float = 1.0


BUSY_TABLES = (
    # A pop visits the dead entries of all positions of its group in the index of ready times.
    BusyTable("positions", "redeliver_singly_until", 256 << 10, 0.25),
    BusyTable("partitions", "low_offset", 512 << 10),
    BusyTable("tallies", "completed", 128 << 10),
)


@dataclass(frozen=True, slots=True)
class BusyTableSizes:
    """Bytes per table, and the oldest transaction id whose dead rows vacuum cannot remove."""

    bytes_by_name: dict[str, int]
    horizon_xid: int


async def read_sizes(session: Session) -> BusyTableSizes:
    rows = await session.fetch("SELECT * FROM busy_tables_v1($1)", [table.name for table in BUSY_TABLES])
    return BusyTableSizes({row["name"]: row["bytes"] for row in rows}, rows[0]["horizon_xid"])


async def rewrite(session: Session, table: BusyTable) -> float | None:
    """Rewrite a table and return the milliseconds for which it was locked.

    Returns None if another session has the table locked or pg_dump starts; nothing has changed then.
    """
    row = await session.fetchrow(
        "SELECT * FROM rewrite_table_v1($1, $2, $3)", table.name, table.rewritten_column, LOCK_TIMEOUT_MS
    )
    if row is None:
        return None
    for dump in await session.fetch("SELECT * FROM end_stale_dumps_v1($1)", row["rewrite_xid"]):
        consequence = "It was ended: repeat it." if dump["ended"] else "Its backup is incomplete: repeat it."
        logger.error(
            "pg_dump (pid %d) started in the moment in which %s was rewritten. %s",
            dump["pid"],
            table.name,
            consequence,
        )
    locked_ms: float = row["locked_ms"]
    return locked_ms
