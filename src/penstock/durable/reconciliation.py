"""Totals and positions compared with the log, a few queues at a time. Run by the one session that does
upkeep."""

from __future__ import annotations

import json
import logging
from typing import Any

from penstock.durable.maintenance_lock import Session
from penstock.durable.pool import Database

logger = logging.getLogger(__name__)

QUEUES_PER_STEP = 20


async def is_due(session: Session, every_s: float) -> bool:
    """Whether one is under way, or the last one ended long enough ago."""
    row = await session.fetchrow(
        """SELECT NOT EXISTS (SELECT 1 FROM reconciliations WHERE ended_at >= clock_timestamp() - $1 *
        interval '1 second')
                  OR EXISTS (SELECT 1 FROM reconciliations WHERE ended_at IS NULL) AS due""",
        every_s,
    )
    return bool(row["due"])


async def step(session: Session) -> bool:
    """Compare some queues; whether that was the end. What is wrong is put right where a number does it,
    noted in the table `reconciliations`, and told."""
    row = await session.fetchrow("SELECT * FROM reconcile_totals_v1($1)", QUEUES_PER_STEP)
    findings = json.loads(row["findings"])
    if row["ended"]:
        log = logger.warning if findings else logger.debug
        log("reconciled %d queues: drift %d, orphans %d", row["queues"], row["drift"], row["orphans"])
        return True
    for found in findings:
        logger.error("reconciliation found in queue %r: %s", found["queue"], found)
    return False


async def latest(database: Database) -> Any | None:
    """The last reconciliation that ended; None before the first."""
    return await database.fetchrow(
        "SELECT * FROM reconciliations WHERE ended_at IS NOT NULL ORDER BY id DESC LIMIT 1"
    )
