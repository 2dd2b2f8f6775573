"""Pushes collected in memory and sent together."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from penstock.client.errors import ClientError, FlushFailed
from penstock.client.http.calls import Calls
from penstock.client.messages import NewMessage, PushItem, item_of

logger = logging.getLogger("penstock.client")


class Buffer:
    """Messages for one queue, pushed in the order they were given: by number, by age, and at the end.

    Until they are pushed they are in this process's memory only. A push that failed (after all attempts)
    stops the buffer: nothing behind it is sent. The next `push`, `flush` or `close` raises FlushFailed with
    everything that is not at the broker, in order; then the buffer is empty and may be used again. Whoever
    fills it waits until it is sent, so memory stays bounded.
    """

    def __init__(
        self, calls: Calls, queue: str, size: int, interval_s: float, siblings: list[Buffer]
    ) -> None:
        if size < 1:
            raise ValueError(f"size must be 1 or more, not {size}")
        if interval_s <= 0:
            raise ValueError(f"interval_s must be more than 0, not {interval_s}")
        self._calls = calls
        self._queue = queue
        self._size = size
        self._interval_s = interval_s
        self._siblings = siblings
        self._waiting: list[tuple[NewMessage, PushItem]] = []
        self._sending = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._by_age: asyncio.Task[None] | None = None
        self._failure: tuple[str, bool] | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def push(
        self,
        payload: Any,
        *,
        partition: str | None = None,
        transaction_id: str | None = None,
        trace_id: UUID | str | None = None,
    ) -> None:
        """Add a message; sends the buffer when it is full. When this raises FlushFailed, the message is part
        of what was not sent."""
        if self._closed:
            raise RuntimeError("the buffer is closed: make another with buffered()")
        message = NewMessage(self._queue, payload, partition, transaction_id, trace_id)
        item = item_of(message)
        self._calls.identify([item])
        self._waiting.append((replace(message, transaction_id=item.transaction_id), item))
        self._raise_failure()
        if len(self._waiting) >= self._size:
            await self.flush()
        elif self._timer is None:
            self._start_timer()

    async def flush(self) -> None:
        """Send what was added until now. Raises FlushFailed with all that could not be sent."""
        await self._send_all(len(self._waiting))
        self._raise_failure()

    async def close(self) -> None:
        """Send everything and end. May be called twice; after a failure too, the buffer is closed."""
        self._closed = True
        if self in self._siblings:
            self._siblings.remove(self)
        await self.flush()
        if self._by_age is not None:
            await self._by_age

    def _raise_failure(self) -> None:
        if self._failure is None:
            return
        reason, uncertain = self._failure
        unsent = [message for message, _ in self._waiting]
        self._failure = None
        self._waiting.clear()
        raise FlushFailed(unsent, reason, uncertain=uncertain)

    async def _send_all(self, count: int) -> None:
        """Send the first `count` messages in order, as many at a time as the buffer holds."""
        async with self._sending:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            try:
                while count > 0 and self._waiting and self._failure is None:
                    some = min(count, self._size)
                    await self._send_some(some)
                    count -= some
            finally:
                if self._waiting and self._timer is None and self._failure is None and not self._closed:
                    self._start_timer()

    async def _send_some(self, count: int) -> None:
        """Send the first messages. They stay in the buffer until they are answered: whoever is cancelled on
        the way loses nothing, and what is sent twice is a duplicate.

        What is refused while others are taken is sent again by itself. The answer to that says why: if the
        queue is full, it is tried again like any push; if a message cannot be taken at all, that ends it.
        """
        while some := self._waiting[:count]:
            count = len(some)  # there may be fewer by now; what is added from here on is not meant
            try:
                results = await self._calls.push([item for _, item in some], set())
            except ClientError as error:
                self._failure = (error.detail, error.uncertain)
                return
            failed = [result for result in results if result.status == "failed"]
            self._waiting[:count] = [some[result.index] for result in failed]
            if len(failed) == count:
                self._failure = (failed[0].error or "refused", False)
                return
            count = len(failed)

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._come_of_age)

    def _come_of_age(self) -> None:
        self._timer = None
        self._by_age = asyncio.create_task(self._flush_by_age())

    async def _flush_by_age(self) -> None:
        await self._send_all(len(self._waiting))
        if self._failure is not None:
            logger.error("pushes to %s failed and wait to be handed back: %s", self._queue, self._failure[0])
