"""A batcher on a simulated clock: batches take a set time, and every request learns how long it waited."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from penstock.batching import BatchStats


class SimulatedBatcher:
    """Executes up to `max_in_flight` batches at a time, each of up to `max_items` requests."""

    def __init__(self, *, service_s: float, max_items: int = 1_000, max_in_flight: int = 2) -> None:
        self.service_s = service_s
        self.max_items = max_items
        self.max_in_flight = max_in_flight
        self.now = 0.0
        self.stats = BatchStats()
        self.waits_s: list[float] = []
        """How long each request waited until its batch started, in the order of their arrival."""
        self._waiting: deque[tuple[float, Callable[[], None]]] = deque()
        """When each pending request arrived, and what to call when it is executed."""
        self._running: list[tuple[float, float, list[Callable[[], None]]]] = []
        """Start and end of each batch in flight, and what to call then."""

    @property
    def pending(self) -> int:
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        return len(self._running)

    def batches_ahead(self) -> int:
        if self.in_flight < self.max_in_flight:
            return 0
        return 1 + self.pending // self.max_items

    def oldest_batch_s(self) -> float:
        return max((self.now - started for started, _, _ in self._running), default=0.0)

    async def drain(self) -> None: ...

    def arrive(self, on_executed: Callable[[], None] = lambda: None) -> None:
        """Add a request."""
        self._waiting.append((self.now, on_executed))
        self._start_batches()

    def advance(self, seconds: float) -> None:
        """Let time pass; batches end and start meanwhile."""
        until = self.now + seconds
        while self._running and (end := min(end for _, end, _ in self._running)) <= until:
            self.now = end
            for batch in [batch for batch in self._running if batch[1] <= end]:
                self._running.remove(batch)
                self.stats.add(len(batch[2]), len(batch[2]), end - batch[0])
                for on_executed in batch[2]:
                    on_executed()
            self._start_batches()
        self.now = until

    def stall(self) -> None:
        """Let the batches in flight, and those that start from now on, never end."""
        self.service_s = math.inf
        self._running = [(started, math.inf, callbacks) for started, _, callbacks in self._running]

    def _start_batches(self) -> None:
        while self._waiting and self.in_flight < self.max_in_flight:
            batch = [self._waiting.popleft() for _ in range(min(self.pending, self.max_items))]
            self.waits_s += [self.now - arrived_at for arrived_at, _ in batch]
            end = self.now + self.service_s
            self._running.append((self.now, end, [on_executed for _, on_executed in batch]))
