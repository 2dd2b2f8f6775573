"""Translate PostgreSQL's failures into Penstock's errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import asyncpg

from penstock.errors import (
    DatabaseFull,
    DatabaseUnavailable,
    GroupDeleted,
    OutcomeUnknown,
    PenstockError,
    QueueDeleted,
    SchemaOutdated,
    TransactionFailed,
    UnknownEnvironment,
    WrongState,
)

T = TypeVar("T")
MAX_ATTEMPTS = 5

UNAVAILABLE = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.ReadOnlySQLTransactionError,
)
"""Errors of a server that is unreachable, restarts or refuses the connection, or is no primary any more; no
statement was at fault."""


def _error_from_sqlstate(error: asyncpg.PostgresError) -> PenstockError | None:
    """Return the error that one of our own functions means by its SQLSTATE."""
    match error.sqlstate:
        case "PK001":
            return GroupDeleted(str(error))
        case "PK003":
            detail = json.loads(error.detail or "{}")
            return TransactionFailed(detail["part"], detail["item"] - 1, detail["reason"])
        case "PK004":
            return QueueDeleted("The queue was deleted during the request. Retry it.")
        case "PK006":
            return UnknownEnvironment(f"T{str(error)[1:]}. Create it with POST /api/v1/environments.")
        case "PK007":
            return WrongState(
                "An encrypted queue cannot have index keys: their values would be stored readable. "
                "Set indexKeys to [] or encryptionEnabled to false.",
                field="options.indexKeys",
            )
        case "42883":
            return SchemaOutdated(f"Run `penstock migrate`: {error}")
    return None


@contextmanager
def translate_errors(sent: bool = False) -> Iterator[None]:
    """Raise DatabaseUnavailable if the server does not respond, and the errors of our functions as their
    classes.

    If a statement was `sent`, its effect is unknown: OutcomeUnknown.
    """
    try:
        yield
    except UNAVAILABLE as error:
        reason = str(error) or type(error).__name__
        may_have_worked = sent and not isinstance(error, asyncpg.ReadOnlySQLTransactionError)
        error_class = OutcomeUnknown if may_have_worked else DatabaseUnavailable
        raise error_class(f"PostgreSQL did not respond ({reason}). Retry shortly.") from error
    except asyncpg.PostgresError as error:
        if known_error := _error_from_sqlstate(error):
            raise known_error from error
        if isinstance(error, asyncpg.InsufficientResourcesError):
            raise DatabaseFull(
                f"PostgreSQL has no room for this ({error}). Free disk space or memory there, then retry."
            ) from error
        raise


async def retry_if_queue_deleted(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call that adds to a queue if the queue is deleted meanwhile: the next attempt creates it
    again."""
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return await call()
        except QueueDeleted:
            continue
    return await call()
