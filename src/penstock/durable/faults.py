"""PostgreSQL's failures as Penstock's errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import asyncpg

from penstock.errors import DatabaseUnavailable, OutcomeUnknown, PenstockError

T = TypeVar("T")
ATTEMPTS = 5

UNAVAILABLE = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
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


class QueueGone(PenstockError):
    """A queue was deleted while something was added to it; nothing was done, trying again makes it anew."""

    code = "queue_gone"
    status = 503
    title = "The queue was deleted meanwhile"


class SchemaOutdated(PenstockError):
    """A function that this version calls is not in the database."""

    code = "schema_outdated"
    status = 503
    title = "PostgreSQL has the schema of another version"


class TransactionFailed(PenstockError):
    """A transaction was not carried out: item `item` (from 0) of its `part`, push or ack, for `reason`."""

    code = "transaction_failed"
    status = 409
    title = "The transaction was not carried out"

    def __init__(self, part: str, item: int, reason: str) -> None:
        super().__init__(f"{part} {item} of the transaction failed: {reason}; nothing was changed")
        self.part = part
        self.item = item
        self.reason = reason


def _raised(error: asyncpg.PostgresError) -> PenstockError | None:
    """The error that one of our own functions meant by its SQLSTATE."""
    match error.sqlstate:
        case "PK001":
            return GroupGone(str(error))
        case "PK003":
            detail = json.loads(error.detail or "{}")
            return TransactionFailed(detail["part"], detail["item"] - 1, detail["reason"])
        case "PK004":
            return QueueGone("the queue is being deleted; try again")
        case "42883":
            return SchemaOutdated(f"run `penstock migrate`: {error}")
    return None


@contextmanager
def translated(sent: bool = False) -> Iterator[None]:
    """Raise DatabaseUnavailable where the server is away, and our functions' errors as their classes.

    Where a statement was `sent`, its effect is not known: OutcomeUnknown.
    """
    try:
        yield
    except UNAVAILABLE as error:
        reason = str(error) or type(error).__name__
        away = OutcomeUnknown if sent else DatabaseUnavailable
        raise away(f"PostgreSQL did not answer ({reason}); retry shortly") from error
    except asyncpg.PostgresError as error:
        if known := _raised(error):
            raise known from error
        raise


async def unless_deleted(work: Callable[[], Awaitable[T]]) -> T:
    """What `work` gives, repeated if a queue it adds to was deleted meanwhile: the next try makes it anew."""
    for _ in range(ATTEMPTS - 1):
        try:
            return await work()
        except QueueGone:
            continue
    return await work()
