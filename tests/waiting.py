"""Waiting on a condition with a deadline, instead of sleeping and hoping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_S = 0.05


def wait_until(condition: Callable[[], T], timeout: float, message: str) -> T:
    """Return the first true value of `condition`.

    After `timeout` seconds it fails with `message` and what was last seen.

    An exception of the condition counts as "not yet" and is shown if it was the last thing seen.
    """
    deadline = time.monotonic() + timeout
    while True:
        seen: object
        try:
            value = condition()
            if value:
                return value
            seen = value
        except Exception as error:  # noqa: BLE001 - the condition may fail until its subject is up
            seen = error
        if time.monotonic() > deadline:
            raise AssertionError(f"{message}: not within {timeout} s; last seen: {seen!r} ({seen})")
        time.sleep(_POLL_S)


async def wait_until_async(condition: Callable[[], Awaitable[T]], timeout: float, message: str) -> T:
    """The same for a condition that must be awaited; other tasks run meanwhile."""
    deadline = time.monotonic() + timeout
    while True:
        seen: object
        try:
            value = await condition()
            if value:
                return value
            seen = value
        except Exception as error:  # noqa: BLE001 - the condition may fail until its subject is up
            seen = error
        if time.monotonic() > deadline:
            raise AssertionError(f"{message}: not within {timeout} s; last seen: {seen!r} ({seen})")
        await asyncio.sleep(_POLL_S)
