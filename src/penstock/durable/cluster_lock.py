"""Locks that let one session of the cluster maintain the log, rewrite busy tables, evaluate alerts or delete
environments.

The session holds an advisory lock and works on the same connection: a lost connection also loses the lock,
and another process may take over without two of them ever working at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from penstock.durable.faults import UNAVAILABLE, translate_errors
from penstock.durable.pool import SCHEMA, Row
from penstock.durable.primary import connect_to_primary
from penstock.errors import PenstockError

MAINTENANCE_KEY = 0x75706B656570  # "upkeep"
ALERTS_KEY = 0x616C65727473  # "alerts"
ENVIRONMENTS_KEY = 0x656E7669726F  # "enviro"
BUSY_TABLES_KEY = 0x627573797462  # "busytb"
_PURPOSES = {
    MAINTENANCE_KEY: "maintenance",
    ALERTS_KEY: "alerts",
    ENVIRONMENTS_KEY: "environments",
    BUSY_TABLES_KEY: "busy tables",
}

STATEMENT_TIMEOUT_S = 60
CLOSE_TIMEOUT_S = 5


class ResourceBusy(PenstockError):
    """Another transaction holds rows or tables that a step needs. The step changed nothing; retry it
    later."""

    code = "busy"
    status = 503
    title = "Resource busy"


@contextmanager
def translate_lock_timeouts() -> Iterator[None]:
    """Raise ResourceBusy where PostgreSQL gave up waiting for a lock."""
    try:
        yield
    except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
        raise ResourceBusy(f"PostgreSQL did not get a lock in time: {error}. Retry shortly.") from error


class ClusterLock:
    """A connection that holds the lock. `close` may be called twice."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._connection = connection

    @classmethod
    async def acquire(cls, url: str, key: int = MAINTENANCE_KEY) -> ClusterLock | None:
        """Return the lock, or None if another process holds it."""
        with translate_errors():
            connection = await connect_to_primary(
                url,
                timeout=10,
                command_timeout=STATEMENT_TIMEOUT_S,
                server_settings={
                    "search_path": SCHEMA,
                    "application_name": f"penstock {_PURPOSES[key]}",
                    "lock_timeout": "2s",
                    "jit": "off",
                },
            )
            try:
                if await connection.fetchval("SELECT pg_try_advisory_lock($1)", key):
                    return cls(connection)
            except BaseException:
                connection.terminate()
                raise
            await connection.close(timeout=CLOSE_TIMEOUT_S)
            return None

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed()

    async def fetch(self, query: str, *args: object) -> list[Row]:
        with translate_errors(), translate_lock_timeouts():
            try:
                return await self._connection.fetch(query, *args)
            except asyncpg.ReadOnlySQLTransactionError:
                self._connection.terminate()  # its lock protects nothing any more
                raise

    async def fetchrow(self, query: str, *args: object) -> Row | None:
        rows = await self.fetch(query, *args)
        return rows[0] if rows else None

    async def close(self) -> None:
        """Release the lock; it is free when this returns. A lost connection has lost the lock already."""
        try:
            await self._connection.close(timeout=CLOSE_TIMEOUT_S)
        except UNAVAILABLE:
            self._connection.terminate()
