"""Keeping the counts of dead letters short, complete and true. Run by the one session that does upkeep."""

from __future__ import annotations

import logging
from typing import NamedTuple

from penstock.durable.maintenance_lock import Session

logger = logging.getLogger(__name__)

FOLD_ROWS = 20_000
GROUP_LETTERS = 1_000
RECOUNT_EVERY_S = 600
KEEP_DAYS = 31


class Recounted(NamedTuple):
    ended: bool
    letters: int
    drift: int


async def fold(session: Session) -> int:
    """One step of adding deltas to the counts; how many there were."""
    row = await session.fetchrow("SELECT fold_dead_letter_counts_v1($1) AS folded", FOLD_ROWS)
    return int(row["folded"])


async def group(session: Session) -> bool:
    """One step of finding the error groups of letters from before there were any; whether more are left."""
    row = await session.fetchrow("SELECT assign_error_keys_v1($1) AS more", GROUP_LETTERS)
    return bool(row["more"])


async def recount_is_due(session: Session) -> bool:
    """Whether a recount is under way, or the last one ended long enough ago."""
    row = await session.fetchrow(
        """SELECT at_queue_id > 0 OR recounted_at IS NULL
                  OR recounted_at < clock_timestamp() - $1::int * interval '1 second' AS due
           FROM dead_upkeep""",
        RECOUNT_EVERY_S,
    )
    return bool(row["due"])


async def recount(session: Session) -> Recounted:
    """Compare one slice of the counts with the rows; what differs is noted, put right and told."""
    row = await session.fetchrow("SELECT * FROM recount_dead_letters_v1()")
    found = Recounted(row["ended"], row["looked_at"], row["drift"])
    if found.drift:
        logger.error(
            "the count of dead letters was wrong by %d; see the table dead_drifts. Something writes to "
            "dead_letters while its triggers are off",
            found.drift,
        )
    return found


async def forget(session: Session) -> None:
    """Drop finished jobs and noted drifts that are old, and counts of queues that are gone."""
    await session.fetch(
        """WITH jobs AS (DELETE FROM jobs WHERE finished_at < clock_timestamp() - $1::int * interval '1 day'),
                drifts AS (DELETE FROM dead_drifts
                           WHERE found_at < clock_timestamp() - $1::int * interval '1 day'),
                gone AS MATERIALIZED (SELECT DISTINCT c.queue_id FROM dead_counts c
                                      WHERE NOT EXISTS (SELECT 1 FROM queues q WHERE q.id = c.queue_id)),
                hours AS (DELETE FROM dead_hours h USING gone WHERE h.queue_id = gone.queue_id),
                errors AS (DELETE FROM dead_error_counts e USING gone WHERE e.queue_id = gone.queue_id)
           DELETE FROM dead_counts c USING gone WHERE c.queue_id = gone.queue_id""",
        KEEP_DAYS,
    )
