"""Group commit: requests of one kind that arrive while the database is busy travel together.

There is no waiting window. An idle batcher sends a request at once; while a batch is in flight the next
one forms. Batches are bounded in items and bytes, and waiting in time. Items keep their order within a key;
different keys do not wait for each other.

A batch that the database refuses is halved until only the culprit fails, so one bad item never costs its
neighbours. When the database is away every item of the batch gets that error, and nothing is retried
here: the callers know whether they may.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from penstock.errors import PenstockError

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")
Received = TypeVar("Received", contravariant=True)


class Receiver(Protocol[Received]):
    """Where a result goes: a future, or something that needs none. It is told once, and must not raise."""

    def done(self) -> bool:
        """Whether nobody is left to receive anything."""

    def set_result(self, result: Received, /) -> None: ...

    def set_exception(self, exception: Exception, /) -> None: ...


@dataclass(slots=True)
class BatchStats:
    """What a batcher has done so far."""

    batches: int = 0
    requests: int = 0
    items: int = 0
    busy_s: float = 0.0
    failures: int = 0

    def add(self, requests: int, items: int, busy_s: float) -> None:
        self.batches += 1
        self.requests += requests
        self.items += items
        self.busy_s += busy_s


@dataclass(slots=True)
class _Entry(Generic[Item, Result]):
    item: Item
    items: int
    size: int
    receiver: Receiver[Result]
    since: float


@dataclass(frozen=True, slots=True)
class QueueTimeout:
    """How long an item may wait for its batch, and what it gets instead if that is over: its caller has most
    likely gone by then, and those behind it have not."""

    seconds: float
    error: Callable[[], PenstockError]


@dataclass(slots=True)
class _Lane(Generic[Item, Result]):
    waiting: deque[_Entry[Item, Result]] = field(default_factory=deque)
    in_flight: int = 0


class Batcher(Generic[Item, Result]):
    """Collects items per key and hands them to `execute`, which returns one result per item."""

    def __init__(
        self,
        execute: Callable[[Hashable, Sequence[Item]], Awaitable[Sequence[Result]]],
        *,
        max_items: int = 1_000,
        max_bytes: int = 8 * 1024 * 1024,
        in_flight: int = 1,
        queue_timeout: QueueTimeout | None = None,
        abandoned: Callable[[Hashable, Item, Result], Awaitable[None]] | None = None,
    ) -> None:
        self._execute = execute
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._in_flight = in_flight
        self._queue_timeout = queue_timeout
        self._abandoned = abandoned
        self._lanes: dict[Hashable, _Lane[Item, Result]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._undoing: set[asyncio.Task[None]] = set()
        self.pending = 0
        """Requests that wait for their batch."""
        self.stats = BatchStats()

    @property
    def in_flight(self) -> int:
        return len(self._tasks)

    async def submit(self, key: Hashable, item: Item, *, items: int = 1, size: int = 0) -> Result:
        """The item's result. Cancelling the caller does not cancel the item: its result is given to
        `abandoned`, which can undo what nobody is left to receive."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.put(key, item, future, items=items, size=size)
        try:
            return await future
        except asyncio.CancelledError:
            # The result may have come before the cancellation, and nobody took it.
            if future.done() and not future.cancelled() and future.exception() is None:
                self.undo(key, item, future.result())
            raise

    def put(
        self, key: Hashable, item: Item, receiver: Receiver[Result], *, items: int = 1, size: int = 0
    ) -> None:
        """The same for who does not wait: the receiver is told, later than this returns."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
        lane.waiting.append(_Entry(item, items, size, receiver, time.monotonic()))
        self.pending += 1
        if lane.in_flight < self._in_flight:
            self._start(key, lane)

    def undo(self, key: Hashable, item: Item, result: Result) -> None:
        """Hand over what nobody is left to receive; no other request waits for that."""
        if self._abandoned is not None:
            task = asyncio.create_task(_logged(self._abandoned(key, item, result)))
            self._undoing.add(task)
            task.add_done_callback(self._undoing.discard)

    def oldest_s(self) -> float:
        """For how long the first in line has waited; 0 if none waits."""
        firsts = [lane.waiting[0].since for lane in self._lanes.values() if lane.waiting]
        return time.monotonic() - min(firsts) if firsts else 0.0

    async def drain(self) -> None:
        """Wait until nothing is waiting, in flight or being given back."""
        while self._tasks or self._undoing:
            await asyncio.gather(*self._tasks, *self._undoing, return_exceptions=True)

    def _start(self, key: Hashable, lane: _Lane[Item, Result]) -> None:
        lane.in_flight += 1
        task = asyncio.create_task(self._run(key, lane))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, key: Hashable, lane: _Lane[Item, Result]) -> None:
        try:
            while lane.waiting:
                if self._queue_timeout is not None:
                    self._send_away(lane, self._queue_timeout)
                if taken := self._take(lane):
                    await self._settle(key, taken)
        finally:
            lane.in_flight -= 1
            if not lane.in_flight and not lane.waiting:
                self._lanes.pop(key, None)

    def _send_away(self, lane: _Lane[Item, Result], queue_timeout: QueueTimeout) -> None:
        """Tell those who have waited too long."""
        since = time.monotonic() - queue_timeout.seconds
        while lane.waiting and lane.waiting[0].since < since:
            self.pending -= 1
            self._fail([lane.waiting.popleft()], queue_timeout.error())

    def _take(self, lane: _Lane[Item, Result]) -> list[_Entry[Item, Result]]:
        taken: list[_Entry[Item, Result]] = []
        items = size = 0
        while lane.waiting:
            entry = lane.waiting[0]
            if taken and (items + entry.items > self._max_items or size + entry.size > self._max_bytes):
                break
            taken.append(lane.waiting.popleft())
            items += entry.items
            size += entry.size
        self.pending -= len(taken)
        return taken

    async def _settle(self, key: Hashable, entries: list[_Entry[Item, Result]]) -> None:
        started = time.perf_counter()
        try:
            results = await self._execute(key, [entry.item for entry in entries])
        except PenstockError as error:
            self.stats.failures += 1
            self._fail(entries, error)
        except Exception as error:  # noqa: BLE001 - narrowed down below, then handed to its caller
            self.stats.failures += 1
            if len(entries) == 1:
                self._fail(entries, error)
            else:
                middle = len(entries) // 2
                await self._settle(key, entries[:middle])
                await self._settle(key, entries[middle:])
        else:
            items = sum(entry.items for entry in entries)
            self.stats.add(len(entries), items, time.perf_counter() - started)
            for entry, result in zip(entries, results, strict=True):
                if not entry.receiver.done():
                    entry.receiver.set_result(result)
                else:
                    self.undo(key, entry.item, result)

    @staticmethod
    def _fail(entries: list[_Entry[Item, Result]], error: Exception) -> None:
        for entry in entries:
            if not entry.receiver.done():
                entry.receiver.set_exception(error)


async def _logged(work: Awaitable[None]) -> None:
    try:
        await work
    except Exception:
        logger.exception("a result that nobody received was not given back")
