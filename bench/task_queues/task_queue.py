"""The interface of a task queue in the benchmark, and a loop that several of them share."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

IN_FLIGHT = 100
"""Concurrent calls of one kind, for every contestant that supports several."""


class TaskQueue(ABC):
    """A contestant that fills and drains a queue of its own.

    Its calls are those of a typical program: one task each, with the concurrency that is fastest for it, and
    as many tasks per fetch as its own workers prefetch.
    """

    name: str

    @abstractmethod
    async def open(self, round_number: int, payloads: list[bytes]) -> None:
        """Open connections and create an empty queue. Not timed."""

    @abstractmethod
    async def fill(self) -> None:
        """Enqueue every payload. The server has confirmed each one when this returns."""

    @abstractmethod
    async def drain(self) -> None:
        """Dequeue and ack every task. The server has confirmed each ack when this returns."""

    @abstractmethod
    async def count_tasks(self) -> int:
        """Return how many tasks the queue holds by Redis's count, both waiting and fetched ones."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections. Not timed."""


async def run_concurrently(
    items: Iterable[T], call: Callable[[T], Awaitable[object]], count: int = IN_FLIGHT
) -> None:
    """Await `call` for every item, with `count` calls in flight."""
    remaining = iter(items)

    async def worker() -> None:
        for item in remaining:
            await call(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(worker())
