"""PostgreSQL's failures as Penstock's errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from penstock.errors import DatabaseUnavailable, PenstockError

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


class GroupGone(PenstockError):
    """The group a caller remembers was deleted; look it up again."""

    code = "group_gone"
    status = 404
    title = "There is no such consumer group"


RAISED: dict[str, type[PenstockError]] = {"PK001": GroupGone}
"""The SQLSTATEs that our own functions raise."""


@contextmanager
def translated() -> Iterator[None]:
    """Raise DatabaseUnavailable where the server is away, and our functions' errors as their classes."""
    try:
        yield
    except UNAVAILABLE as error:
        reason = str(error) or type(error).__name__
        raise DatabaseUnavailable(f"PostgreSQL did not answer ({reason}); retry shortly") from error
    except asyncpg.PostgresError as error:
        if known := RAISED.get(error.sqlstate or ""):
            raise known(str(error)) from error
        raise
