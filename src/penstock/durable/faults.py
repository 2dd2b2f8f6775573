"""PostgreSQL's failures as Penstock's errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from penstock.errors import DatabaseUnavailable

UNAVAILABLE = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InvalidAuthorizationSpecificationError,
)
"""What says that the server is away, restarting or refuses us, not that a statement was wrong."""

DatabaseError = asyncpg.PostgresError


@contextmanager
def translated() -> Iterator[None]:
    """Raise DatabaseUnavailable where the server is away; let a statement's own error through."""
    try:
        yield
    except UNAVAILABLE as error:
        reason = str(error) or type(error).__name__
        raise DatabaseUnavailable(f"PostgreSQL did not answer ({reason}); retry shortly") from error
