"""Check a component at most once a second, however many requests ask, and never wait for one that hangs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NotRequired, TypedDict

from penstock.background import cancel_and_wait

MAX_AGE_S = 1.0
"""A result that is younger than this is used again."""

TIMEOUT_S = 2.0
"""A component that does not respond for so long is down."""

CLOCK_TOLERANCE_S = 0.05
"""A timer of the event loop may fire this much early."""


class ComponentHealth(TypedDict):
    status: str
    """up or down"""
    detail: str
    ms: NotRequired[float]


class CachedCheck:
    """The last result of a check, and at most one check that is running.

    A check that gets no response is left running, because a driver may wait for the server even when it is
    cancelled. The next check starts when it has ended.
    """

    def __init__(self, check: Callable[[], Awaitable[str]], max_age_s: float = MAX_AGE_S) -> None:
        self._check = check
        self._max_age_s = max_age_s
        self._task: asyncio.Task[None] | None = None
        self._started_at = 0.0
        self._result: ComponentHealth = {"status": "down", "detail": "no response yet"}
        self._checked_at = float("-inf")

    async def read(self, max_wait_s: float = TIMEOUT_S) -> ComponentHealth:
        """Return the result of a check that started at most a second ago.

        If that check has no result within `max_wait_s`, return the previous one; after two seconds without a
        response the component is down.
        """
        now = time.monotonic()
        if self._task is None and now - self._checked_at >= self._max_age_s:
            self._started_at = now
            self._task = asyncio.create_task(self._run(), name="health check")
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=min(max_wait_s, self._started_at + TIMEOUT_S - now))
        if self._task is not None:
            pending_s = time.monotonic() - self._started_at
            if pending_s >= TIMEOUT_S - CLOCK_TOLERANCE_S:
                return {"status": "down", "detail": f"no response for {pending_s:.0f} s"}
        return self._result

    async def stop(self) -> None:
        if self._task is not None:
            await cancel_and_wait(self._task)

    async def _run(self) -> None:
        try:
            self._result = await self._describe()
        finally:
            self._checked_at = time.monotonic()
            self._task = None

    async def _describe(self) -> ComponentHealth:
        try:
            detail = await self._check()
        except Exception as error:  # noqa: BLE001 - whatever a driver raises, its server does not work
            return {"status": "down", "detail": str(error) or type(error).__name__}
        return {"status": "up", "detail": detail, "ms": round((time.monotonic() - self._started_at) * 1e3, 1)}
