"""The one session in the cluster that looks after the log.

It holds an advisory lock for as long as it lives and works on the same connection: if the connection is lost,
so is the lock, and another process may begin without two ever working at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import asyncpg

from penstock.durable.faults import UNAVAILABLE, translated
from penstock.durable.pool import SCHEMA
from penstock.errors import PenstockError

LOCK_KEY = 0x75706B656570  # "upkeep"

STATEMENT_S = 60
CLOSE_S = 5


class Busy(PenstockError):
    """Somebody else holds what a step needs; the step changed nothing and is tried again later."""

    code = "busy"
    status = 503
    title = "The log is in use"


class Session(Protocol):
    """Runs one statement per call, each in a transaction of its own."""

    async def fetch(self, query: str, *args: Any) -> list[Any]: ...

    async def fetchrow(self, query: str, *args: Any) -> Any: ...


@contextmanager
def yielding() -> Iterator[None]:
    """Raise Busy where PostgreSQL gave up waiting for a lock."""
    try:
        yield
    except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
        raise Busy(f"PostgreSQL did not get a lock in time: {error}") from error


class Upkeep:
    """A connection that holds the lock. `close` may be called twice."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._connection = connection

    @classmethod
    async def begin(cls, url: str) -> Upkeep | None:
        """The session, or None if another process has it."""
        with translated():
            connection = await asyncpg.connect(
                url,
                timeout=10,
                command_timeout=STATEMENT_S,
                server_settings={
                    "search_path": SCHEMA,
                    "application_name": "penstock maintenance",
                    "lock_timeout": "2s",
                    "jit": "off",
                },
            )
            try:
                if await connection.fetchval("SELECT pg_try_advisory_lock($1)", LOCK_KEY):
                    return cls(connection)
            except BaseException:
                connection.terminate()
                raise
            await connection.close(timeout=CLOSE_S)
            return None

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed()

    async def fetch(self, query: str, *args: Any) -> list[asyncpg.Record]:
        with translated(), yielding():
            return await self._connection.fetch(query, *args)

    async def fetchrow(self, query: str, *args: Any) -> asyncpg.Record | None:
        with translated(), yielding():
            return await self._connection.fetchrow(query, *args)

    async def close(self) -> None:
        """Give up the lock; it is free when this returns. A connection that is lost has lost it already."""
        try:
            await self._connection.close(timeout=CLOSE_S)
        except UNAVAILABLE:
            self._connection.terminate()
