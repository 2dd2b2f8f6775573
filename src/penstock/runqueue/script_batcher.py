"""Merge concurrent calls of one command into one script call per shard.

There is no waiting window. The first call to an idle shard starts at once; the calls that arrive while it
is in flight form the next batch. A script decides item by item, so a batch never has to be split when one
item cannot be executed.
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
    response: asyncio.Future[list[Result]]


class ScriptBatcher(Generic[Item, Result]):
    """Passes items to `execute`, which returns one result per item.

    Cancelling a caller does not withdraw its items. Their results go to `on_abandoned`.
    """

    def __init__(
        self,
        execute: Callable[[int, list[Item]], Awaitable[list[Result]]],
        on_abandoned: Callable[[int, list[Result]], Awaitable[None]] | None = None,
        *,
        max_weight: int = 1_000,
    ) -> None:
        self._execute = execute
        self._on_abandoned = on_abandoned
        self._max_weight = max_weight
        self._pending: dict[int, deque[_Request[Item, Result]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def has_pending(self) -> bool:
        """Whether a request waits or is in flight."""
        return bool(self._pending)

    async def submit(self, shard: int, items: Sequence[Item], weight: int | None = None) -> list[Result]:
        """Return the results of the items. A request larger than `max_weight` is one call by itself.

        `weight`: how many tasks the request may concern, if not as many as it has items.
        """
        response: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        request = _Request(items, len(items) if weight is None else weight, response)
        if shard in self._pending:
            self._pending[shard].append(request)
        else:
            self._pending[shard] = deque((request,))
            self._start(self._run(shard))
        try:
            return await response
        except asyncio.CancelledError:
            # The response may have arrived before the cancellation, and no caller has received it.
            if response.done() and not response.cancelled() and response.exception() is None:
                self._abandon(shard, response.result())
            raise

    async def drain(self) -> None:
        """Wait until no request waits or is in flight."""
        while self._tasks:
            # `gather` would return at once for tasks that are done but not removed yet (Python 3.12).
            await asyncio.wait(self._tasks)

    async def _run(self, shard: int) -> None:
        pending = self._pending[shard]
        try:
            while pending:
                await self._call(shard, self._next_batch(pending))
        finally:
            del self._pending[shard]

    def _next_batch(self, pending: deque[_Request[Item, Result]]) -> list[_Request[Item, Result]]:
        batch = [pending.popleft()]
        weight = batch[0].weight
        while pending and weight + pending[0].weight <= self._max_weight:
            weight += pending[0].weight
            batch.append(pending.popleft())
        return batch

    async def _call(self, shard: int, requests: list[_Request[Item, Result]]) -> None:
        items = [item for request in requests for item in request.items]
        try:
            results = await self._execute(shard, items)
        except Exception as error:  # noqa: BLE001 - every caller of the batch receives it
            for request in requests:
                if not request.response.done():
                    request.response.set_exception(error)
            return
        start = 0
        for request in requests:
            own_results = results[start : start + len(request.items)]
            start += len(request.items)
            if request.response.done():
                self._abandon(shard, own_results)
            else:
                request.response.set_result(own_results)

    def _abandon(self, shard: int, results: list[Result]) -> None:
        if self._on_abandoned is not None:
            self._start(self._on_abandoned(shard, results))

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
