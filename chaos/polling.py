"""Wait for a condition of the platform under test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

POLL_S = 0.1


async def poll(condition: Callable[[], Awaitable[T]], timeout_s: float) -> T:
    """Return the first true value of `condition`, or its last value when the time is over."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = await condition()
        if value or time.monotonic() > deadline:
            return value
        await asyncio.sleep(POLL_S)
