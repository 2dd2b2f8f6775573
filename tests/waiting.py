"""Wait on a condition with a deadline; a failed wait shows the last value of the condition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.deadlines import deadline_s

T = TypeVar("T")

_POLL_S = 0.05


def wait_until(condition: Callable[[], T], timeout: float, message: str) -> T:
    """Return the first true value of `condition`.

    After `timeout` seconds, times the slowness of the machine, it fails with `message` and the last value. An
    exception of the condition counts as "not yet"; the failure shows it if it was the last result.
    """
    deadline = time.monotonic() + deadline_s(timeout)
    while True:
        last_result: object
        try:
            value = condition()
            if value:
                return value
            last_result = value
        except Exception as error:  # noqa: BLE001 - the condition may fail until its subject is up
            last_result = error
        if time.monotonic() > deadline:
            raise AssertionError(_describe_timeout(message, deadline_s(timeout), last_result))
        time.sleep(_POLL_S)


async def wait_until_async(condition: Callable[[], Awaitable[T]], timeout: float, message: str) -> T:
    """Like `wait_until`, for a condition that must be awaited; other tasks run meanwhile."""
    deadline = time.monotonic() + deadline_s(timeout)
    while True:
        last_result: object
        try:
            value = await condition()
            if value:
                return value
            last_result = value
        except Exception as error:  # noqa: BLE001 - the condition may fail until its subject is up
            last_result = error
        if time.monotonic() > deadline:
            raise AssertionError(_describe_timeout(message, deadline_s(timeout), last_result))
        await asyncio.sleep(_POLL_S)


def _describe_timeout(message: str, timeout: float, last_result: object) -> str:
    return f"{message}: not within {timeout:g} s; last seen: {last_result!r} ({last_result})"
