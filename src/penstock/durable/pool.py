"""A pool of connections to PostgreSQL, and typed rows from its functions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn, Protocol, TypeAlias, TypeVar

import asyncpg

from penstock.durable.faults import translate_errors
from penstock.durable.outage import Outage
from penstock.durable.primary import PrimaryConnection, connect_to_primary
from penstock.errors import DatabaseUnavailable

SCHEMA = "penstock"

SESSION = {
    "search_path": SCHEMA,
    # A connection keeps its plans. A plan made while the tables are small would scan them from end to end,
    # and still do so when they have grown: it must choose an index wherever there is one.
    "enable_seqscan": "off",
    # Where there is no index, the penalty for scanning a table would make compiling the plan look worthwhile.
    "jit": "off",
    # Planning the larger statements for every call would take longer than executing them.
    "plan_cache_mode": "force_generic_plan",
}
"""Settings of every session that works on queues."""

ACQUIRE_TIMEOUT_S = 10.0
"""How long an operation waits for a connection."""

MAX_HOT_CONNECTIONS = 4
"""Connections kept outside the pool between operations: acquiring and releasing one costs as much as a call.
About as many as there are kinds of batches. The pool closes further connections when they idle."""

Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"
Row: TypeAlias = asyncpg.Record
RowT = TypeVar("RowT")


class Session(Protocol):
    """Executes one statement per call, each in a transaction of its own."""

    async def fetch(self, query: str, *args: object) -> list[Row]: ...

    async def fetchrow(self, query: str, *args: object) -> Row | None: ...


async def fetch_all(session: Session, row_type: Callable[..., RowT], query: str, *args: object) -> list[RowT]:
    """Return every row as an object: columns are passed to `row_type` by name."""
    return [row_type(**row) for row in await session.fetch(query, *args)]


async def fetch_one(
    session: Session, row_type: Callable[..., RowT], query: str, *args: object
) -> RowT | None:
    """Return the first row as an object, or None if there is no row."""
    row = await session.fetchrow(query, *args)
    return None if row is None else row_type(**row)


async def fetch_value(session: Session, value_type: Callable[..., RowT], query: str, *args: object) -> RowT:
    """Return the first column of the only row, converted to `value_type`."""
    row = await session.fetchrow(query, *args)
    assert row is not None
    return value_type(row[0])


async def _keep_session(connection: object) -> None:
    """Skip asyncpg's reset: no operation leaves anything in a session, and a reset would cost every operation
    a second round trip."""


def _is_open(connection: Connection) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:  # the connection ended and the pool has taken it back by itself
        return False


class Database:
    """A pool whose connections see Penstock's schema. Opens lazily; `close` may be called twice.

    A call after `close` raises DatabaseUnavailable: it would open connections that nothing closes.
    """

    def __init__(self, url: str, size: int = 10) -> None:
        self.url = url
        self.size = size
        self.waiting = 0
        """Operations that wait for a connection."""
        self.errors = 0
        """Calls that failed because PostgreSQL was unreachable or raised an error that is not one of ours."""
        self.outage = Outage(url)
        self.on_failover: Callable[[], None] = lambda: None
        """Called when the first connection to a promoted standby opens, before an operation uses it."""
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._hot_connections: list[Connection] = []
        self._open_lock = asyncio.Lock()
        self._closed = False
        self._timeline: tuple[int, ...] | None = None

    async def open(self) -> None:
        """Connect once, however many first requests arrive together."""
        async with self._open_lock:
            if self._closed:
                raise DatabaseUnavailable("The broker is stopping: its connections to PostgreSQL are closed.")
            if self._pool is None:
                self._pool = await self._connect()

    async def _connect(self) -> asyncpg.Pool[asyncpg.Record]:
        with translate_errors():
            return await asyncpg.create_pool(
                self.url,
                connect=self._connect_to_primary,
                min_size=1,
                max_size=self.size,
                timeout=10,
                command_timeout=60,
                reset=_keep_session,
                server_settings={**SESSION, "application_name": "penstock"},
            )

    async def _connect_to_primary(self, dsn: str | None = None, **options: Any) -> PrimaryConnection:
        return await connect_to_primary(dsn or self.url, on_timeline=self._check_timeline, **options)

    def _check_timeline(self, *timeline: int) -> None:
        if self._timeline not in (None, timeline):
            self.on_failover()
        self._timeline = timeline

    async def close(self) -> None:
        await self.outage.stop()
        async with self._open_lock:
            self._closed = True
            if self._pool is not None:
                while self._hot_connections:
                    await self._pool.release(self._hot_connections.pop())
                await self._pool.close()
                self._pool = None

    @asynccontextmanager
    async def connection(self, *, count_errors: bool = True) -> AsyncIterator[Connection]:
        """Lend a connection.

        Raises DatabaseUnavailable if there is none, at once during an outage, and OutcomeUnknown if the
        connection is lost while it is used. Failures add to `errors` unless `count_errors` is false.
        """
        connection = await self._acquire(count_errors)
        try:
            yield connection
        except BaseException as error:  # noqa: BLE001 - raised again
            await self._discard(connection, error, count_errors)
        await self._release(connection)

    async def fetch(self, query: str, *args: object) -> list[Row]:
        """Return the rows of a statement. Raises as `connection` does."""
        connection = await self._acquire()
        try:
            rows = await connection.fetch(query, *args)
        except BaseException as error:  # noqa: BLE001 - raised again
            await self._discard(connection, error)
        await self._release(connection)
        return rows

    async def fetchrow(self, query: str, *args: object) -> Row | None:
        rows = await self.fetch(query, *args)
        return rows[0] if rows else None

    async def _acquire(self, count_errors: bool = True) -> Connection:
        if self.outage.is_active:
            self.outage.raise_if_active()
        while self._hot_connections:
            connection = self._hot_connections.pop()
            if _is_open(connection):
                return connection
            assert self._pool is not None
            await self._pool.release(connection)
        try:
            return await self._acquire_from_pool()
        except DatabaseUnavailable:
            self.errors += count_errors
            self.outage.suspect()
            raise

    async def _acquire_from_pool(self) -> Connection:
        if self._pool is None:
            await self.open()
        assert self._pool is not None
        self.waiting += 1
        try:
            with translate_errors():
                return await self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S)
        finally:
            self.waiting -= 1

    async def _release(self, connection: Connection) -> None:
        """Keep the connection hot, unless an operation waits at the pool."""
        assert self._pool is not None
        if not self.waiting and not self._closed and len(self._hot_connections) < MAX_HOT_CONNECTIONS:
            self._hot_connections.append(connection)
        else:
            await self._pool.release(connection)

    async def _discard(
        self, connection: Connection, error: BaseException, count_errors: bool = True
    ) -> NoReturn:
        """Return the connection of a failed call to the pool, and raise the error that the failure means."""
        assert self._pool is not None
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            await self._expire_connections()
        try:
            with translate_errors(sent=True):
                try:
                    raise error
                finally:
                    await self._pool.release(connection)
        except DatabaseUnavailable:
            self.errors += count_errors
            self.outage.suspect()
            raise
        except asyncpg.PostgresError:
            self.errors += count_errors
            raise

    async def _expire_connections(self) -> None:
        """Replace all connections at their next use: the server is no primary any more, but answers."""
        assert self._pool is not None
        await self._pool.expire_connections()
        while self._hot_connections:
            await self._pool.release(self._hot_connections.pop())

    @property
    def connections(self) -> tuple[int, int]:
        """How many connections are open, and how many of them are busy."""
        if self._pool is None:
            return 0, 0
        size = self._pool.get_size()
        return size, size - self._pool.get_idle_size() - sum(map(_is_open, self._hot_connections))

    async def ping(self) -> None:
        """Raise DatabaseUnavailable if PostgreSQL does not respond."""
        await self.fetch("SELECT 1")
