"""Collect pushes in memory and send them together."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from dataclasses import replace
from typing import Unpack

from penstock.client.errors import ClientError, FlushFailed
from penstock.client.http.broker_api import BrokerApi
from penstock.client.lifecycle import AsyncClosable
from penstock.client.messages import MessageOptions, NewMessage, PushItem, push_item

logger = logging.getLogger("penstock.client")


class Buffer(AsyncClosable):
    """Messages for one queue, pushed in order: when the buffer is full, after an interval, and at the end.

    Until they are pushed they are only in this process's memory. A push that fails after all attempts stops
    the buffer: it sends no later message. The next `push`, `flush` or `close` raises FlushFailed with every
    unsent message, in order; then the buffer is empty and can be used again. A push into a full buffer waits
    until it is sent, so memory stays bounded.
    """

    def __init__(
        self, api: BrokerApi, queue: str, size: int, interval_s: float, registry: list[Buffer]
    ) -> None:
        if size < 1:
            raise ValueError(f"size must be 1 or more, not {size}")
        if interval_s <= 0:
            raise ValueError(f"interval_s must be more than 0, not {interval_s}")
        self._api = api
        self._queue = queue
        self._size = size
        self._interval_s = interval_s
        self._registry = registry
        self._unsent: list[tuple[NewMessage, PushItem]] = []
        self._send_lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._interval_flush: asyncio.Task[None] | None = None
        self._failure: tuple[str, bool] | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._unsent)

    async def push(self, payload: object, **options: Unpack[MessageOptions]) -> None:
        """Add a message; send the buffer when it is full.

        If this raises FlushFailed, the message is among the unsent ones.
        """
        if self._closed:
            raise RuntimeError("The buffer is closed. Create another one with buffered().")
        message = NewMessage(self._queue, payload, **options)
        item = push_item(message)
        self._api.assign_transaction_ids([item])
        if self._api.tracing is not None:
            self._api.tracing.create(item)
        self._unsent.append((replace(message, transaction_id=item.transaction_id), item))
        self._raise_failure()
        if len(self._unsent) >= self._size:
            await self.flush()
        elif self._timer is None:
            self._start_timer()

    async def flush(self) -> None:
        """Send all buffered messages. Raises FlushFailed with those that could not be sent."""
        await self._send_all(len(self._unsent))
        self._raise_failure()

    async def close(self) -> None:
        """Send everything and close the buffer, also after a failure. May be called twice."""
        self._closed = True
        if self in self._registry:
            self._registry.remove(self)
        await self.flush()
        if self._interval_flush is not None:
            await self._interval_flush

    def _raise_failure(self) -> None:
        if self._failure is None:
            return
        reason, uncertain = self._failure
        unsent = [message for message, _ in self._unsent]
        self._failure = None
        self._unsent.clear()
        raise FlushFailed(unsent, reason, uncertain=uncertain)

    async def _send_all(self, count: int) -> None:
        """Send the first `count` messages in order, one buffer size at a time."""
        async with self._send_lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            try:
                while count > 0 and self._unsent and self._failure is None:
                    batch_size = min(count, self._size)
                    await self._send_batch(batch_size)
                    count -= batch_size
            finally:
                if self._unsent and self._timer is None and self._failure is None and not self._closed:
                    self._start_timer()

    async def _send_batch(self, count: int) -> None:
        """Send the first messages. They stay in the buffer until the broker answers.

        A cancelled call therefore loses nothing, and a message sent twice is a duplicate.

        Messages that fail while others succeed are sent again alone. The response to that gives the reason: a
        full queue is retried like any push; an invalid message ends the flush.
        """
        while batch := self._unsent[:count]:
            count = len(batch)  # there may be fewer by now; later messages do not belong to this batch
            try:
                results = await self._api.push([item for _, item in batch], set())
            except ClientError as error:
                self._failure = (error.detail, error.uncertain)
                return
            failed = [result for result in results if result.status == "failed"]
            self._unsent[:count] = [batch[result.index] for result in failed]
            if len(failed) == count:
                self._failure = (failed[0].error or "refused", False)
                return
            count = len(failed)

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(
            self._interval_s,
            self._on_interval,
            context=Context(),  # the flush is no part of what the first push belongs to
        )

    def _on_interval(self) -> None:
        self._timer = None
        self._interval_flush = asyncio.create_task(self._flush_after_interval())

    async def _flush_after_interval(self) -> None:
        await self._send_all(len(self._unsent))
        if self._failure is not None:
            logger.error("Pushes to %s failed and stay in the buffer: %s", self._queue, self._failure[0])
