"""What a queue of tasks must be able to do to take part."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

IN_FLIGHT = 100
"""How many calls of one kind are under way at once, for everybody who can have several."""


class TaskQueue(ABC):
    """Fills and drains a queue of its own. The calls are those a program would make: one task each, as many
    at once as serves it best, and as many tasks per fetch as its own workers take ahead."""

    name: str

    @abstractmethod
    async def open(self, round_number: int, payloads: list[bytes]) -> None:
        """Connections, and an empty queue; untimed."""

    @abstractmethod
    async def fill(self) -> None:
        """Enqueue every payload; each is acknowledged by the server when this returns."""

    @abstractmethod
    async def drain(self) -> None:
        """Dequeue every task and ack it; each ack is acknowledged by the server when this returns."""

    @abstractmethod
    async def held(self) -> int:
        """How many tasks its queue holds, whether they wait or were fetched, as Redis tells."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of connections; untimed."""


async def at_once(items: Iterable[T], do: Callable[[T], Awaitable[object]], count: int = IN_FLIGHT) -> None:
    """Do it with every item, `count` of them at a time."""
    left = iter(items)

    async def turn() -> None:
        for item in left:
            await do(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(turn())
