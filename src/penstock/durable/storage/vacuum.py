"""Vacuum the busiest tables, and record the transaction id clock."""

from __future__ import annotations

from penstock.durable.pool import Session

BUSY_TABLES = ("positions", "partitions", "tallies", "dead_tallies", "queues", "groups")
"""Small tables whose rows change all the time."""
MIN_DEAD_ROWS = 5_000
"""A table with fewer dead rows is not worth a vacuum."""


async def record_xid_clock(session: Session) -> None:
    """Record the next transaction id, which dates the ids that sessions hold."""
    await session.fetch("SELECT record_xid_clock_v1()")


async def vacuum_busy_tables(session: Session) -> list[str]:
    """Vacuum the tables in which dead rows pile up, and return their names.

    Autovacuum does the same once a minute by default: too seldom for tables of a few pages that change
    thousands of times a second. No session waits for this vacuum. It skips locked tables and tables of other
    owners.
    """
    rows = await session.fetch("SELECT * FROM tables_to_vacuum_v1($1, $2)", list(BUSY_TABLES), MIN_DEAD_ROWS)
    names = [row["name"] for row in rows]
    for name in names:
        # VACUUM cannot run inside a function; the names are those of BUSY_TABLES.
        await session.fetch(f"VACUUM (SKIP_LOCKED, TRUNCATE FALSE) {name}")
    return names
