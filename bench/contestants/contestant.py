"""What a contestant must be able to do, and a loop that peers on PostgreSQL connections share."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any


class Contestant(ABC):
    """Pushes and consumes. Each method that is timed returns the messages it handled."""

    name: str
    consumes: bool = True

    @abstractmethod
    async def open(self, connections: int) -> None:
        """Make tables and connections; untimed."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of connections; may be called twice."""

    @abstractmethod
    async def prepare_push(self, size: int, messages: list[str]) -> None:
        """An empty queue, and `messages` in batches of `size` ready to be sent; untimed."""

    @abstractmethod
    async def push(self, connections: int, deadline: float) -> int:
        """Send what was prepared; begin nothing after the deadline (of time.perf_counter)."""

    async def prepare_consume(self, size: int, messages: list[str]) -> None:
        """A new queue that holds `messages`; untimed."""
        raise NotImplementedError

    async def consume(self, size: int, connections: int, total: int, deadline: float) -> int:
        """Take `total` messages in batches of `size`, each batch acknowledged before the next."""
        raise NotImplementedError

    @abstractmethod
    async def held(self) -> int:
        """How many messages its queue holds, as the database tells; what it claims is checked with it."""

    def can_consume(self, size: int) -> bool:
        return self.consumes


async def share(
    connections: list[Any], work: list[Any], do: Callable[[Any, Any], Awaitable[int]], deadline: float
) -> int:
    """Every connection takes the next piece of work as soon as it is free; the messages handled."""
    pieces = iter(work)
    handled = 0

    async def loop(connection: Any) -> None:
        nonlocal handled
        for piece in pieces:
            count = await do(connection, piece)
            handled += count  # not in one statement with the await: it would read the sum before it waits
            if time.perf_counter() > deadline:
                return

    await asyncio.gather(*(loop(connection) for connection in connections))
    return handled


async def drain(
    connections: list[Any], take: Callable[[Any], Awaitable[int]], total: int, deadline: float
) -> int:
    """Every connection takes and acknowledges until `total` messages are through."""
    handled = 0

    async def loop(connection: Any) -> None:
        nonlocal handled
        while handled < total and time.perf_counter() < deadline:
            count = await take(connection)
            handled += count
            if not count:
                await asyncio.sleep(0.002)

    await asyncio.gather(*(loop(connection) for connection in connections))
    return handled


def batches(messages: list[Any], size: int) -> list[list[Any]]:
    return [messages[start : start + size] for start in range(0, len(messages), size)]
