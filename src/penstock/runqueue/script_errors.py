"""Redis's failures, and the scripts' own errors, as Penstock's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
)

from penstock.errors import PenstockError, RedisUnavailable, UnknownQueue, WrongState

UNAVAILABLE = (
    OSError,
    asyncio.TimeoutError,
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    TimeoutError,
)
"""What says that the server is away, full, restarting or refuses us, not that a command was wrong."""

CANNOT_WRITE = ("MISCONF", "OOM", "READONLY", "NOREPLICAS", "LOADING", "CLUSTERDOWN")
"""The same, where the client has no class for it or a script met it."""

BY_CODE: dict[str, type[PenstockError]] = {"UNKNOWNQUEUE": UnknownQueue, "NOTEMPTY": WrongState}


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except UNAVAILABLE as error:
        raise _unavailable(error) from error
    except ResponseError as error:
        code, _, detail = str(error).partition(" ")
        if known := BY_CODE.get(code):
            raise known(detail) from error
        if any(code == text or f"{text} " in str(error) for text in CANNOT_WRITE):
            raise _unavailable(error) from error
        raise


def _unavailable(error: BaseException) -> RedisUnavailable:
    reason = str(error) or type(error).__name__
    return RedisUnavailable(f"Redis did not carry it out ({reason}); retry shortly")
