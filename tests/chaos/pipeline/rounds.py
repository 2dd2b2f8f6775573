"""Emit equal events in rounds, and wait until they are counted."""

from __future__ import annotations

import time

from redis import Redis

from penstock.definitions import MetricDefinition
from penstock.warehouse.clickhouse_client import Warehouse
from tests.chaos.pipeline.kill_metrics import emit, totals
from tests.waiting import wait_until

TIMEOUT_S = 180


class Rounds:
    """Emits the same events in every round, for every metric, and computes the expected totals."""

    def __init__(
        self,
        events: int,
        redis_url: str,
        warehouse: Warehouse,
        metrics: tuple[MetricDefinition, ...],
        *,
        waits_for_disk: bool = True,
    ) -> None:
        self._events = events
        self._metrics = metrics
        self._redis_url = redis_url
        self._warehouse = warehouse
        self._waits_for_disk = waits_for_disk
        self._at_ms = int(time.time() * 1000)
        self.count = 0
        self._round_totals = (0, 0, 0, 0)

    def emit(self) -> None:
        with Redis.from_url(self._redis_url) as redis:
            for definition in self._metrics:
                self._round_totals = emit(redis, definition, self._events, self._at_ms)
            if self._waits_for_disk:  # a test that kills Redis
                assert redis.execute_command("WAITAOF", 1, 0, 10_000)[0] == 1
        self.count += 1

    def expected(self, rounds: int | None = None) -> set[tuple[int, ...]]:
        return {tuple(number * (self.count if rounds is None else rounds) for number in self._round_totals)}

    def counted(self) -> set[tuple[int, ...]]:
        """Return the distinct totals in the tables of the first metric: one element if they agree."""
        return set(totals(self._warehouse, self._metrics[0]).values())

    def wait_until_counted(self) -> None:
        wait_until(
            lambda: min(events for events, *_ in self.counted()) >= self.count * self._events,
            TIMEOUT_S,
            f"round {self.count} is counted",
        )
