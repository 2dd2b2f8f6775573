"""Wait until the lanes of partitions are empty, for requests that are executed at once and never deferred."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.errors import Overloaded

LANE_TIMEOUT_S, LANE_POLL_S = 5.0, 0.05
"""How long a request waits for the lanes of its partitions to empty, and how often it retries."""

Result = TypeVar("Result")


async def execute_after_lanes(
    attempt: Callable[[], Awaitable[Result | None]], notify_work: Callable[[], None]
) -> Result:
    """Repeat `attempt` until it returns a result; it returns None while operations wait in a lane.

    Raises Overloaded after LANE_TIMEOUT_S.
    """
    deadline = time.monotonic() + LANE_TIMEOUT_S
    while (result := await attempt()) is None:
        if time.monotonic() > deadline:
            raise Overloaded
        notify_work()
        await asyncio.sleep(LANE_POLL_S)
    return result
