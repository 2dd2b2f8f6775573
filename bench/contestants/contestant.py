"""The interface of a contestant, and the loops that contestants on PostgreSQL connections share."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TypeVar

C = TypeVar("C")
T = TypeVar("T")

EMPTY_PAUSE_S = 0.002


class Contestant(ABC):
    """A message queue. Each method that is timed returns the number of messages it handled."""

    name: str
    consumes: bool = True

    @abstractmethod
    async def open(self, connections: int) -> None:
        """Create tables and connections. Not timed."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections. May be called twice."""

    @abstractmethod
    async def prepare_push(self, size: int, messages: list[str]) -> None:
        """Create an empty queue and prepare `messages` in batches of `size`. Not timed."""

    @abstractmethod
    async def push(self, connections: int, deadline: float) -> int:
        """Send the prepared batches. Start none after the deadline (of time.perf_counter)."""

    async def prepare_consume(self, size: int, messages: list[str]) -> None:
        """Create a queue that holds `messages`. Not timed."""
        raise NotImplementedError

    async def consume(self, size: int, connections: int, total: int, deadline: float) -> int:
        """Consume `total` messages in batches of `size` and ack each batch before the next."""
        raise NotImplementedError

    @abstractmethod
    async def count_messages(self) -> int:
        """Return how many messages the queue holds by a query, to verify the contestant's own counts."""

    def can_consume(self, size: int) -> bool:
        return self.consumes


async def push_batches(
    connections: list[C],
    batches: list[list[T]],
    send: Callable[[C, list[T]], Awaitable[int]],
    deadline: float,
) -> int:
    """Send all batches and return the messages handled.

    Each connection takes the next batch as soon as it is free.
    """
    remaining = iter(batches)
    handled = 0

    async def loop(connection: C) -> None:
        nonlocal handled
        for batch in remaining:
            count = await send(connection, batch)
            handled += count  # `handled += await …` would read the sum before it waits
            if time.perf_counter() > deadline:
                return

    await asyncio.gather(*(loop(connection) for connection in connections))
    return handled


async def consume_batches(
    connections: list[C], consume: Callable[[C], Awaitable[int]], total: int, deadline: float
) -> int:
    """Consume and ack on every connection until `total` messages are handled or the deadline passes."""
    handled = 0

    async def loop(connection: C) -> None:
        nonlocal handled
        while handled < total and time.perf_counter() < deadline:
            count = await consume(connection)
            handled += count
            if not count:
                await asyncio.sleep(EMPTY_PAUSE_S)

    await asyncio.gather(*(loop(connection) for connection in connections))
    return handled


def split_batches(messages: list[T], size: int) -> list[list[T]]:
    return [messages[start : start + size] for start in range(0, len(messages), size)]
