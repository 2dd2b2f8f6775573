"""Batch concurrent requests into one call of PostgreSQL or Redis (group commit).

There is no batching window: an idle batcher executes a request at once, and while a batch is in flight the
next one forms. A batch is bounded in items and bytes, the wait for a batch in time. Items keep their order
within a key, and keys do not wait for each other.

If the server rejects a batch, the batcher halves it until only the offending item fails, so one bad item
never affects the others. Where a failed call may have changed something, the batcher must not call again:
with `isolates_failures=False` every item of the batch fails. If the server is unavailable, every item fails
with that error. The batcher retries nothing; only its callers know whether a retry is safe.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, Protocol, TypeVar

from penstock.errors import PenstockError

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")
Received = TypeVar("Received", contravariant=True)


class Receiver(Protocol[Received]):
    """The destination of one result: a future, or an object with the same three methods.

    The batcher calls `set_result` or `set_exception` once; neither may raise.
    """

    def done(self) -> bool:
        """Return True if the caller no longer expects a result."""

    def set_result(self, result: Received, /) -> None: ...

    def set_exception(self, exception: Exception, /) -> None: ...


@dataclass(slots=True)
class BatchStats:
    """Counters of a batcher since it was created."""

    batches: int = 0
    requests: int = 0
    items: int = 0
    busy_s: float = 0.0
    failures: int = 0

    def add(self, requests: int, items: int, busy_s: float) -> None:
        """Add one batch."""
        self.batches += 1
        self.requests += requests
        self.items += items
        self.busy_s += busy_s


class BatcherState(Protocol):
    """The measurable side of a batcher, whatever its items and results are."""

    @property
    def stats(self) -> BatchStats: ...

    @property
    def pending(self) -> int: ...

    @property
    def in_flight(self) -> int: ...

    @property
    def max_in_flight(self) -> int: ...

    def batches_ahead(self) -> int: ...

    def oldest_batch_s(self) -> float: ...

    async def drain(self) -> None: ...


@dataclass(slots=True)
class _Entry(Generic[Item, Result]):
    item: Item
    items: int
    size_bytes: int
    receiver: Receiver[Result]
    queued_at: float


@dataclass(frozen=True, slots=True)
class QueueTimeout:
    """The longest time an item may wait for its batch, and the error it gets after that.

    By then the caller has most likely given up, while the callers of later items have not.
    """

    seconds: float
    create_error: Callable[[], PenstockError]


@dataclass(slots=True)
class _KeyQueue(Generic[Item, Result]):
    """The waiting items of one key, and the number of its batches in flight."""

    waiting: deque[_Entry[Item, Result]] = field(default_factory=deque)
    in_flight: int = 0


class Batcher(Generic[Item, Result]):
    """Collect items per key and pass them to `execute`, which returns one result per item."""

    def __init__(
        self,
        execute: Callable[[Hashable, Sequence[Item]], Awaitable[Sequence[Result]]],
        *,
        max_items: int = 1_000,
        max_bytes: int = 8 * 1024 * 1024,
        max_in_flight: int = 1,
        queue_timeout: QueueTimeout | None = None,
        isolates_failures: bool = True,
        on_abandoned: Callable[[Hashable, Item, Result], Awaitable[None]] | None = None,
    ) -> None:
        self._execute = execute
        self._max_items = max_items
        self._max_bytes = max_bytes
        self.max_in_flight = max_in_flight
        self._queue_timeout = queue_timeout
        self._isolates_failures = isolates_failures
        self._on_abandoned = on_abandoned
        self._queues: dict[Hashable, _KeyQueue[Item, Result]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._abandon_tasks: set[asyncio.Task[None]] = set()
        self._batches_started: dict[int, float] = {}
        """When each batch in flight was started, oldest first; by the id of its list."""
        self.pending = 0
        """Number of requests that wait for their batch."""
        self._pending_items = 0
        self._pending_bytes = 0
        self.stats = BatchStats()

    @property
    def in_flight(self) -> int:
        """Number of batches in flight."""
        return len(self._tasks)

    async def submit(self, key: Hashable, item: Item, *, items: int = 1, size: int = 0) -> Result:
        """Execute the item with its batch and return its result.

        Cancelling the caller does not cancel the item. Its result goes to `on_abandoned`, which can undo it.
        """
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.put(key, item, future, items=items, size=size)
        return await receive(future, lambda result: self.abandon(key, item, result))

    def put(
        self, key: Hashable, item: Item, receiver: Receiver[Result], *, items: int = 1, size: int = 0
    ) -> None:
        """Queue the item without waiting: its result reaches the receiver after this call has returned."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _KeyQueue()
        queue.waiting.append(_Entry(item, items, size, receiver, time.monotonic()))
        self.pending += 1
        self._pending_items += items
        self._pending_bytes += size
        if queue.in_flight < self.max_in_flight:
            queue.in_flight += 1
            task = asyncio.create_task(self._run(key, queue))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def abandon(self, key: Hashable, item: Item, result: Result) -> None:
        """Pass a result that has no caller any more to `on_abandoned`. No other request waits for it."""
        if self._on_abandoned is not None:
            task = asyncio.create_task(_log_failure(self._on_abandoned(key, item, result)))
            self._abandon_tasks.add(task)
            task.add_done_callback(self._abandon_tasks.discard)

    def batches_ahead(self) -> int:
        """Return how many batches end before that of a new request starts; 0 if it starts at once.

        These are the next batch in flight to end, and the full batches that are pending. Keys do not wait for
        each other, so each is taken to have an equal share of the pending requests.
        """
        keys = len(self._queues)
        if len(self._tasks) < keys * self.max_in_flight or not keys:
            return 0
        if self._pending_items < self._max_items and self._pending_bytes < self._max_bytes:
            return 1
        by_items = self._pending_items // (keys * self._max_items)
        by_bytes = self._pending_bytes // (keys * self._max_bytes)
        return 1 + max(by_items, by_bytes)

    def oldest_batch_s(self) -> float:
        """Return for how long the oldest batch in flight has been executed; 0 if there is none."""
        oldest = next(iter(self._batches_started.values()), None)
        return 0.0 if oldest is None else time.monotonic() - oldest

    async def drain(self) -> None:
        """Wait until no request is pending, in flight or being abandoned."""
        while tasks := self._tasks | self._abandon_tasks:
            # `gather` would return at once for tasks that are done but not removed yet (Python 3.12).
            await asyncio.wait(tasks)

    async def _run(self, key: Hashable, queue: _KeyQueue[Item, Result]) -> None:
        try:
            while queue.waiting:
                if batch := self._take_batch(queue):
                    self._batches_started[id(batch)] = time.monotonic()
                    try:
                        await self._execute_batch(key, batch)
                    finally:
                        del self._batches_started[id(batch)]
        finally:
            queue.in_flight -= 1
            if not queue.in_flight and not queue.waiting:
                self._queues.pop(key, None)

    def _take_batch(self, queue: _KeyQueue[Item, Result]) -> list[_Entry[Item, Result]]:
        """Remove the next batch from the queue, and fail the items that waited longer than the timeout."""
        batch: list[_Entry[Item, Result]] = []
        items = size_bytes = 0
        timeout = self._queue_timeout
        oldest_allowed = 0.0 if timeout is None else time.monotonic() - timeout.seconds
        while queue.waiting:
            entry = queue.waiting[0]
            if timeout is not None and entry.queued_at < oldest_allowed:
                self._fail([entry], timeout.create_error())
            elif batch and (
                items + entry.items > self._max_items or size_bytes + entry.size_bytes > self._max_bytes
            ):
                break
            else:
                batch.append(entry)
                items += entry.items
                size_bytes += entry.size_bytes
            queue.waiting.popleft()
            self.pending -= 1
            self._pending_items -= entry.items
            self._pending_bytes -= entry.size_bytes
        return batch

    async def _execute_batch(self, key: Hashable, entries: list[_Entry[Item, Result]]) -> None:
        started = time.perf_counter()
        try:
            results = await self._execute(key, [entry.item for entry in entries])
        except PenstockError as error:
            self.stats.failures += 1
            self._fail(entries, error)
        except Exception as error:  # noqa: BLE001 - the failing items get the error
            self.stats.failures += 1
            if len(entries) == 1 or not self._isolates_failures:
                self._fail(entries, error)
            else:
                middle = len(entries) // 2
                await self._execute_batch(key, entries[:middle])
                await self._execute_batch(key, entries[middle:])
        else:
            self.stats.batches += 1
            self.stats.requests += len(entries)
            self.stats.items += sum([entry.items for entry in entries])
            self.stats.busy_s += time.perf_counter() - started
            for entry, result in zip(entries, results, strict=True):
                if not entry.receiver.done():
                    entry.receiver.set_result(result)
                else:
                    self.abandon(key, entry.item, result)

    @staticmethod
    def _fail(entries: list[_Entry[Item, Result]], error: Exception) -> None:
        for entry in entries:
            if not entry.receiver.done():
                entry.receiver.set_exception(error)


async def receive(future: asyncio.Future[Result], abandon: Callable[[Result], None]) -> Result:
    """Wait for a result. A result that arrived just before the caller was cancelled goes to `abandon`."""
    try:
        return await future
    except asyncio.CancelledError:
        if future.done() and not future.cancelled() and future.exception() is None:
            abandon(future.result())
        raise


async def result_of(start: Callable[[Receiver[Result]], None]) -> Result:
    """Call `start` with a receiver and wait for the result that the receiver gets."""
    future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    start(future)
    return await future


def split_results(requests: Sequence[Sequence[object]], results: Sequence[Result]) -> list[list[Result]]:
    """Split the results of all items into one list per request."""
    remaining = iter(results)
    return [list(islice(remaining, len(request))) for request in requests]


async def _log_failure(work: Awaitable[None]) -> None:
    try:
        await work
    except Exception:
        logger.exception("Could not undo a result whose caller is gone.")
