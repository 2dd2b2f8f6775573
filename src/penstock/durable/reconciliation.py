"""Reconciliation: compare totals and positions with the log, a few queues per step."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from typing import NamedTuple

from penstock.durable.pool import Session, fetch_one, fetch_value

logger = logging.getLogger(__name__)

QUEUES_PER_STEP = 20


class ReconciliationReport(NamedTuple):
    """A row of `latest_reconciliation_v1`.

    `drift` is the number of messages by which totals were wrong, `orphans` the number of rows without an
    owner.
    """

    began_at: datetime
    ended_at: datetime
    queues: int
    partitions: int
    positions: int
    drift: int
    orphans: int
    findings: str
    """A JSON array with one object per finding."""


class Reconciliation:
    """Runs and reports reconciliations. Steps are run by the session that holds the maintenance lock."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def is_due(self, interval_s: float) -> bool:
        """Return whether one is unfinished, or the last one ended more than `interval_s` ago."""
        return await fetch_value(
            self._session, bool, "SELECT * FROM is_reconciliation_due_v1($1)", interval_s
        )

    async def run_step(self) -> bool:
        """Compare some queues; whether that was the last step.

        Wrong numbers are corrected. Every finding is recorded in the table `reconciliations` and logged.
        """
        row = await self._session.fetchrow("SELECT * FROM reconcile_totals_v1($1)", QUEUES_PER_STEP)
        assert row is not None
        findings = json.loads(row["findings"])
        if row["ended"]:
            log = logger.warning if findings else logger.debug
            log("reconciled %d queues: drift %d, orphans %d", row["queues"], row["drift"], row["orphans"])
            return True
        for finding in findings:
            logger.error("reconciliation found in queue %r: %s", finding["queue"], finding)
        return False

    async def latest(self) -> ReconciliationReport | None:
        """Return the last reconciliation that ended; None before the first."""
        return await fetch_one(
            self._session, ReconciliationReport, "SELECT * FROM latest_reconciliation_v1()"
        )
