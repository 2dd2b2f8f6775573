"""Small chores: dead rows of the busiest tables, old traces, and the clock of transaction ids."""

from __future__ import annotations

import logging
from datetime import datetime

from penstock.durable.maintenance_lock import Session

logger = logging.getLogger(__name__)

BUSY_TABLES = ("positions", "partitions", "tallies", "dead_tallies", "queues", "groups")
"""Small tables of which the same rows change all the time."""
DEAD_ROWS = 5_000
"""Dead rows of one table from which cleaning it is worth a round's while."""
TRACES_PER_STEP = 5_000


async def read_clock(session: Session) -> None:
    """Note which transaction id is next, so that it can be told how long one has been held."""
    await session.fetch(
        """WITH old AS (DELETE FROM xid_clock WHERE at < clock_timestamp() - interval '3 days')
           INSERT INTO xid_clock (at, next_xid) VALUES (clock_timestamp(), pg_current_xact_id())
           ON CONFLICT DO NOTHING"""
    )


async def vacuum(session: Session) -> list[str]:
    """Remove dead rows where they pile up; the tables that were cleaned.

    PostgreSQL does the same by itself, once a minute by default: too seldom for tables of a few pages that
    change thousands of times a second. It takes no lock that anybody waits for, and skips what is locked and
    what this user does not own.
    """
    rows = await session.fetch(
        """SELECT s.relname::text AS name FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
           WHERE s.schemaname = current_schema AND s.relname = ANY ($1)
             AND s.n_dead_tup > $2 AND s.n_dead_tup > s.n_live_tup / 5
             AND pg_has_role(c.relowner, 'USAGE')""",
        list(BUSY_TABLES),
        DEAD_ROWS,
    )
    names = [row["name"] for row in rows]
    for name in names:
        await session.fetch(f"VACUUM (SKIP_LOCKED, TRUNCATE FALSE) {name}")
    return names


async def prune_traces(session: Session, before: datetime) -> bool:
    """One step of forgetting old traces; whether there may be more."""
    row = await session.fetchrow("SELECT prune_traces_v1($1, $2) AS pruned", before, TRACES_PER_STEP)
    return bool(row["pruned"] >= TRACES_PER_STEP)
