"""Connections to PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import asyncpg

from penstock.durable.faults import translated
from penstock.durable.outage import Outage
from penstock.errors import DatabaseUnavailable

SCHEMA = "penstock"

SESSION = {
    "search_path": SCHEMA,
    # A plan is kept for as long as its connection. One made while the tables are small would read them from
    # end to end, and still do so when they have grown: so it must choose an index wherever there is one.
    "enable_seqscan": "off",
    # Where there is none, the penalty for reading a table would make compiling the plan look worth its while.
    "jit": "off",
    # Planning the larger statements anew for every call would take longer than running them.
    "plan_cache_mode": "force_generic_plan",
}
"""What every session that works on queues is told."""

ACQUIRE_S = 10.0
"""How long an operation waits for a connection at most."""

MOST_AT_HAND = 4
"""Connections that stay at hand between operations: taking one from the pool and giving it back costs as much
as a call. About as many as there are kinds of batches; the pool closes what more there are when they idle."""

Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"


async def _keep(connection: object) -> None:
    """Nothing we run leaves anything behind in a session, so a connection goes back as it is: resetting it
    would cost every operation a second round trip."""


def _is_open(connection: Connection) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:  # it ended, and the pool has taken it back by itself
        return False


class Database:
    """A pool whose connections see Penstock's schema. Opens lazily; may be closed twice.

    Who comes after it was closed is refused: nobody would be left to close what that opened.
    """

    def __init__(self, url: str, size: int = 10) -> None:
        self.url = url
        self.size = size
        self.waiting = 0
        """How many wait for a connection."""
        self.errors = 0
        """Calls that failed: PostgreSQL was away, or refused what it never should."""
        self.outage = Outage(url)
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._at_hand: list[Connection] = []
        self._opening = asyncio.Lock()
        self._closed = False

    async def open(self) -> None:
        """Connect, unless somebody else is at it or has done it: the first requests come together."""
        async with self._opening:
            if self._closed:
                raise DatabaseUnavailable("the connections to PostgreSQL are closed: the broker is stopping")
            if self._pool is None:
                self._pool = await self._connect()

    async def _connect(self) -> asyncpg.Pool[asyncpg.Record]:
        with translated():
            return await asyncpg.create_pool(
                self.url,
                min_size=1,
                max_size=self.size,
                timeout=10,
                command_timeout=60,
                reset=_keep,
                server_settings={**SESSION, "application_name": "penstock"},
            )

    async def close(self) -> None:
        await self.outage.stop()
        async with self._opening:
            self._closed = True
            if self._pool is not None:
                while self._at_hand:
                    await self._pool.release(self._at_hand.pop())
                await self._pool.close()
                self._pool = None

    @asynccontextmanager
    async def connection(self, *, counted: bool = True) -> AsyncIterator[Connection]:
        """A connection of one's own. Raises DatabaseUnavailable if there is none to be had, at once during
        an outage, and OutcomeUnknown if it is lost while it is used. What fails is `counted` among the
        errors."""
        self.outage.check()
        try:
            connection = await self._acquire()
            went_well = False
            try:
                with translated(sent=True):
                    yield connection
                went_well = True
            finally:
                await self._give_back(connection, went_well)
        except DatabaseUnavailable:
            self.errors += counted
            self.outage.suspect()
            raise
        except asyncpg.PostgresError:
            self.errors += counted
            raise

    async def _acquire(self) -> Connection:
        if self._pool is None:
            await self.open()
        assert self._pool is not None
        while self._at_hand:
            connection = self._at_hand.pop()
            if _is_open(connection):
                return connection
            await self._pool.release(connection)
        self.waiting += 1
        try:
            with translated():
                return await self._pool.acquire(timeout=ACQUIRE_S)
        finally:
            self.waiting -= 1

    async def _give_back(self, connection: Connection, went_well: bool) -> None:
        """Keep it at hand, unless the pool must look after it or somebody waits there."""
        assert self._pool is not None
        if went_well and not self.waiting and not self._closed and len(self._at_hand) < MOST_AT_HAND:
            self._at_hand.append(connection)
        else:
            await self._pool.release(connection)

    async def fetch(self, query: str, *args: Any) -> list[asyncpg.Record]:
        async with self.connection() as connection:
            return await connection.fetch(query, *args)

    async def fetchrow(self, query: str, *args: Any) -> asyncpg.Record | None:
        async with self.connection() as connection:
            return await connection.fetchrow(query, *args)

    @property
    def connections(self) -> tuple[int, int]:
        """How many connections are open, and how many of them are busy."""
        if self._pool is None:
            return 0, 0
        size = self._pool.get_size()
        return size, size - self._pool.get_idle_size() - sum(map(_is_open, self._at_hand))

    async def ping(self) -> None:
        await self.fetch("SELECT 1")
