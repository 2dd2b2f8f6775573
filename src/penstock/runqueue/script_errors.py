"""Translate errors of Redis and of the scripts into Penstock errors."""

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

UNAVAILABLE_ERRORS = (
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
"""The server is unreachable, full or restarting, or rejects the client.

The command itself is not at fault.
"""

UNAVAILABLE_CODES = ("MISCONF", "OOM", "READONLY", "NOREPLICAS", "LOADING", "CLUSTERDOWN")
"""The same conditions as reply codes: the client has no class for some, and scripts report them as text."""

SCRIPT_ERRORS: dict[str, type[PenstockError]] = {"UNKNOWNQUEUE": UnknownQueue, "NOTEMPTY": WrongState}


@contextmanager
def translate_redis_errors() -> Iterator[None]:
    try:
        yield
    except UNAVAILABLE_ERRORS as error:
        raise _unavailable(error) from error
    except ResponseError as error:
        code, _, detail = str(error).partition(" ")
        if error_class := SCRIPT_ERRORS.get(code):
            raise error_class(detail) from error
        if any(code == text or f"{text} " in str(error) for text in UNAVAILABLE_CODES):
            raise _unavailable(error) from error
        raise


def _unavailable(error: BaseException) -> RedisUnavailable:
    reason = str(error) or type(error).__name__
    return RedisUnavailable(f"Redis did not execute the command ({reason}); retry shortly.")
