"""The state of the database pool and of PostgreSQL, for health checks and exported metrics."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import NamedTuple

from penstock.durable.pool import Database, fetch_value
from penstock.durable.reserved_connection import ReservedConnection
from penstock.durable.storage.vacuum_horizon import HorizonHolder, find_horizon_holders
from penstock.errors import DatabaseUnavailable


class ConnectionUsage(NamedTuple):
    """The database connections of this process. `waiting` counts operations that wait for a connection."""

    limit: int
    open: int
    busy: int
    waiting: int


class DatabaseDiagnostics:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._health_connection = ReservedConnection(database.url, "penstock health")

    async def check_health(self, horizon_s: float) -> list[HorizonHolder]:
        """Ask PostgreSQL for what has held its vacuum horizon for longer than this.

        Raises DatabaseUnavailable if it does not respond: at once during an outage, else within 2 s. Other
        calls then fail at once too, as soon as a probe has confirmed the outage.
        """
        self._database.outage.raise_if_active()
        try:
            return await find_horizon_holders(self._health_connection, timedelta(seconds=horizon_s))
        except DatabaseUnavailable:
            self._database.outage.suspect()
            raise

    def close(self) -> None:
        self._health_connection.close()

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

    async def vacuum_horizon_holders(self, longer_than_s: float) -> list[HorizonHolder]:
        """Return what has kept PostgreSQL from removing dead rows for longer than this, the oldest first."""
        return await find_horizon_holders(self._database, timedelta(seconds=longer_than_s))

    async def postgres_statistics(self) -> dict[str, object]:
        """Return PostgreSQL's own statistics of this database, with the field names of Queen 0.15."""
        text = await fetch_value(self._database, str, "SELECT postgres_statistics_v1()")
        statistics: dict[str, object] = json.loads(text)
        return statistics
