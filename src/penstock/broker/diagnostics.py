"""Read-only views of the database for health checks and exported metrics."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import NamedTuple

from penstock.durable import log, reconciliation
from penstock.durable.dead_letters import dead_letter_queries
from penstock.durable.pool import Database
from penstock.durable.storage import vacuum_horizon
from penstock.durable.storage.vacuum_horizon import Holder
from penstock.model import Scope


class ConnectionUsage(NamedTuple):
    """The database connections of this process. `waiting` counts operations that wait for a connection."""

    limit: int
    open: int
    busy: int
    waiting: int


class QueueGauges(NamedTuple):
    """The state of one group of a queue; `group` is empty for the queue as a whole."""

    queue: str
    group: str
    depth: int
    running: int
    oldest_at: datetime | None


class ReconciliationSummary(NamedTuple):
    """The result of the last comparison of totals and positions with the log."""

    ended_at: datetime
    drift: int
    findings: int


class DeadLetterDrift(NamedTuple):
    """By how much recounts of the last 31 days corrected the dead-letter counts, and the end of the last one."""

    drift: int
    recounted_at: datetime | None


class Diagnostics:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def ping(self) -> None:
        """Raise DatabaseUnavailable if PostgreSQL does not respond."""
        await self._database.ping()

    @property
    def connections(self) -> ConnectionUsage:
        opened, busy = self._database.connections
        return ConnectionUsage(self._database.size, opened, busy, self._database.waiting)

    @property
    def database_errors(self) -> int:
        return self._database.errors

    @property
    def outage_s(self) -> float:
        """How long PostgreSQL has been unreachable; 0 while it is reachable."""
        return self._database.outage.duration_s

    async def vacuum_horizon_holders(self, longer_than_s: float) -> list[Holder]:
        """What has kept PostgreSQL from removing dead rows for longer than this, the oldest first."""
        return await vacuum_horizon.horizon(self._database, timedelta(seconds=longer_than_s))

    async def last_reconciliation(self) -> ReconciliationSummary | None:
        """None before the first reconciliation has ended."""
        row = await reconciliation.latest(self._database)
        if row is None:
            return None
        return ReconciliationSummary(row["ended_at"], row["drift"], len(json.loads(row["findings"])))

    async def queue_gauges(self, scope: Scope, max_queues: int) -> list[QueueGauges]:
        """The gauges of the queues of an environment and of their groups, the oldest queues first."""
        rows = await log.named_gauges(self._database, scope, max_queues)
        return [
            QueueGauges(row["queue"], row["group_name"], row["depth"], row["running"], row["oldest_at"])
            for row in rows
        ]

    async def dead_letter_drift(self) -> DeadLetterDrift:
        return DeadLetterDrift(*await dead_letter_queries.drift(self._database))
