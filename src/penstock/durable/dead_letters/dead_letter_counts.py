"""Maintain the counts of dead letters: fold deltas, assign error keys, recount.

The session that holds the maintenance lock runs these steps.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from penstock.durable.pool import Session, fetch_one, fetch_value

logger = logging.getLogger(__name__)

DELTAS_PER_FOLD = 20_000
DEAD_LETTERS_PER_STEP = 1_000
RECOUNT_INTERVAL_S = 600
KEEP_DAYS = 31


class RecountStep(NamedTuple):
    """The row of `recount_dead_letters_v1`. `ended`: every slice has been counted."""

    ended: bool
    scanned: int
    drift: int


async def fold_deltas(session: Session) -> int:
    """Add one batch of deltas to the counts; how many there were."""
    return await fetch_value(session, int, "SELECT fold_dead_letter_counts_v1($1)", DELTAS_PER_FOLD)


async def assign_error_keys(session: Session, limit: int = DEAD_LETTERS_PER_STEP) -> bool:
    """Assign error keys to one batch of dead letters from before error keys existed; whether more are
    left."""
    return await fetch_value(session, bool, "SELECT assign_error_keys_v1($1)", limit)


async def is_recount_due(session: Session) -> bool:
    """Return whether a recount is unfinished, or the last one ended more than RECOUNT_INTERVAL_S ago."""
    return await fetch_value(session, bool, "SELECT * FROM is_recount_due_v1($1)", RECOUNT_INTERVAL_S)


async def recount(session: Session) -> RecountStep:
    """Compare one slice of the counts with the rows; a difference is recorded, corrected and logged."""
    step = await fetch_one(session, RecountStep, "SELECT * FROM recount_dead_letters_v1()")
    assert step is not None
    if step.drift:
        logger.error(
            "the count of dead letters was wrong by %d; see the table dead_drifts. A client writes to "
            "dead_letters with its triggers disabled",
            step.drift,
        )
    return step


async def prune_records(session: Session) -> None:
    """Delete old finished jobs, old recorded drifts, and the counts of deleted queues."""
    await session.fetch("SELECT prune_dead_letter_records_v1($1)", KEEP_DAYS)
