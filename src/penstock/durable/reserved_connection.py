"""A connection to PostgreSQL that is reserved for one purpose, such as health checks.

A pool whose connections are all busy does not delay it, nor look like an outage to it, and a server that
hangs keeps no connection of the pool.
"""

from __future__ import annotations

import asyncio

from penstock.durable.faults import translate_errors
from penstock.durable.pool import SESSION, Row
from penstock.durable.primary import PrimaryConnection, connect_to_primary

TIMEOUT_S = 2.0


class ReservedConnection:
    """A connection that opens at the first statement and is replaced after a failure.

    Every call ends within `TIMEOUT_S`, also if the server hangs: a statement that fails is not cancelled on
    the server, but its connection is dropped.
    """

    def __init__(self, url: str, application_name: str) -> None:
        self._url = url
        self._application_name = application_name
        self._lock = asyncio.Lock()
        self._connection: PrimaryConnection | None = None

    async def fetch(self, query: str, *args: object) -> list[Row]:
        """Return the rows of a statement. Raises DatabaseUnavailable if PostgreSQL does not respond."""
        with translate_errors():
            async with asyncio.timeout(TIMEOUT_S), self._lock:
                try:
                    if self._connection is None or self._connection.is_closed():
                        self._connection = await self._connect()
                    return await self._connection.fetch(query, *args)
                except BaseException:
                    self.close()
                    raise

    async def fetchrow(self, query: str, *args: object) -> Row | None:
        rows = await self.fetch(query, *args)
        return rows[0] if rows else None

    def close(self) -> None:
        """Drop the connection without waiting for the server. May be called twice."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _connect(self) -> PrimaryConnection:
        return await connect_to_primary(
            self._url,
            timeout=TIMEOUT_S,
            server_settings={**SESSION, "application_name": self._application_name},
        )
