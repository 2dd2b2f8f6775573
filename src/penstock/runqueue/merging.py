"""Calls of one kind that arrive while Redis is busy travel together, in one script call per shard.

There is no waiting window: an idle shard is called at once, and the next call forms while the last is on its
way. A script decides item by item, so nothing has to be taken apart when one of them cannot be done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(slots=True)
class _Request(Generic[Item, Result]):
    items: Sequence[Item]
    weight: int
    answer: asyncio.Future[list[Result]]


class Merger(Generic[Item, Result]):
    """Hands items to `execute`, which returns one result per item.

    Cancelling a caller does not take its items back; their results go to `abandoned`.
    """

    def __init__(
        self,
        execute: Callable[[int, list[Item]], Awaitable[list[Result]]],
        abandoned: Callable[[int, list[Result]], Awaitable[None]] | None = None,
        *,
        most: int = 1_000,
    ) -> None:
        self._execute = execute
        self._abandoned = abandoned
        self._most = most
        self._waiting: dict[int, deque[_Request[Item, Result]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, shard: int, items: Sequence[Item], weight: int | None = None) -> list[Result]:
        """The items' results. A request larger than a call's usual size still goes in one.

        `weight`: how many tasks it may concern, if not as many as it has items.
        """
        answer: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        request = _Request(items, len(items) if weight is None else weight, answer)
        if shard in self._waiting:
            self._waiting[shard].append(request)
        else:
            self._waiting[shard] = deque((request,))
            self._start(self._run(shard))
        try:
            return await answer
        except asyncio.CancelledError:
            # The answer may have come before the cancellation, and nobody took it.
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                self._give_up(shard, answer.result())
            raise

    async def drain(self) -> None:
        """Wait until nothing is waiting or on its way."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, shard: int) -> None:
        waiting = self._waiting[shard]
        try:
            while waiting:
                await self._call(shard, self._take(waiting))
        finally:
            del self._waiting[shard]

    def _take(self, waiting: deque[_Request[Item, Result]]) -> list[_Request[Item, Result]]:
        taken = [waiting.popleft()]
        size = taken[0].weight
        while waiting and size + waiting[0].weight <= self._most:
            size += waiting[0].weight
            taken.append(waiting.popleft())
        return taken

    async def _call(self, shard: int, requests: list[_Request[Item, Result]]) -> None:
        items = [item for request in requests for item in request.items]
        try:
            results = await self._execute(shard, items)
        except Exception as error:  # noqa: BLE001 - handed to every caller
            for request in requests:
                if not request.answer.done():
                    request.answer.set_exception(error)
            return
        start = 0
        for request in requests:
            own = results[start : start + len(request.items)]
            start += len(request.items)
            if request.answer.done():
                self._give_up(shard, own)
            else:
                request.answer.set_result(own)

    def _give_up(self, shard: int, results: list[Result]) -> None:
        if self._abandoned is not None:
            self._start(self._abandoned(shard, results))

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
