"""Share the result of an expensive read between all requests that need it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, TypeVar

from penstock.model import Scope

T = TypeVar("T")

PAUSE_FACTOR = 5.0
"""After a read of one second, the next one starts five seconds later at the earliest."""
MAX_PAUSE_S = 15.0


IDLE_AFTER_S = 60.0
"""An environment without readers for so long is forgotten."""


class SharedRead(Generic[T]):
    """The last result of a read, and at most one read that is running.

    A read starts when a request needs a result and the last one is older than `max_age_s`; without requests
    nothing is read. It gets the last result. An error of the read is raised to the requests that wait for it.
    """

    def __init__(
        self,
        read: Callable[[T | None], Awaitable[T]],
        max_age_s: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._max_age_s = max_age_s
        self._monotonic = monotonic
        self._task: asyncio.Task[T] | None = None
        self._next_at = float("-inf")
        self._result: T | None = None
        self.requested_at = monotonic()
        """When a request last needed the result."""

    async def get(self) -> T:
        """Return a result that is fresh enough."""
        self.requested_at = self._monotonic()
        if self._result is not None and self.requested_at < self._next_at:
            return self._result
        return await asyncio.shield(self._start())

    async def get_newer(self) -> T:
        """Return the result of a read that starts after this call, however fresh the last one is."""
        if self._task is not None:
            await asyncio.wait({self._task})
        return await asyncio.shield(self._start())

    async def get_within(self, max_wait_s: float) -> T | None:
        """Return a fresh result, or after `max_wait_s` the last one; None if there is none yet."""
        try:
            async with asyncio.timeout(max_wait_s):
                return await self.get()
        except TimeoutError:
            return self._result

    @property
    def is_running(self) -> bool:
        return self._task is not None

    async def stop(self) -> None:
        """Cancel the read that is running."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _start(self) -> asyncio.Task[T]:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="shared read")
            self._task.add_done_callback(_retrieve_error)
        return self._task

    async def _run(self) -> T:
        started_at = self._monotonic()
        try:
            self._result = await self._read(self._result)
            return self._result
        finally:
            ended_at = self._monotonic()
            pause_s = min(PAUSE_FACTOR * (ended_at - started_at), MAX_PAUSE_S)
            self._next_at = max(started_at + self._max_age_s, ended_at + pause_s)
            self._task = None


class EnvironmentReads(Generic[T]):
    """A shared read per environment. Environments without readers are forgotten."""

    def __init__(
        self,
        read: Callable[[Scope, T | None], Awaitable[T]],
        max_age_s: float,
    ) -> None:
        self._read = read
        self._max_age_s = max_age_s
        self._reads: dict[Scope, SharedRead[T]] = {}

    async def get(self, scope: Scope) -> T:
        """Return a result that is fresh enough."""
        return await self._find(scope).get()

    async def get_newer(self, scope: Scope) -> T:
        """Return the result of a read that starts after this call, however fresh the last one is."""
        return await self._find(scope).get_newer()

    async def get_within(self, scope: Scope, max_wait_s: float) -> T | None:
        """Return a fresh result, or after `max_wait_s` the last one; None if there is none yet."""
        return await self._find(scope).get_within(max_wait_s)

    async def stop(self) -> None:
        for read in self._reads.values():
            await read.stop()

    def _find(self, scope: Scope) -> SharedRead[T]:
        if scope not in self._reads:
            self._forget_idle()
            self._reads[scope] = SharedRead(partial(self._read, scope), self._max_age_s)
        return self._reads[scope]

    def _forget_idle(self) -> None:
        forgotten_before = time.monotonic() - IDLE_AFTER_S
        self._reads = {
            scope: read
            for scope, read in self._reads.items()
            if read.is_running or read.requested_at > forgotten_before
        }


def _retrieve_error(task: asyncio.Task[Any]) -> None:
    """Mark the error as read: the waiting requests get it, and without any it needs no log entry."""
    if not task.cancelled():
        task.exception()
