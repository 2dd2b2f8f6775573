"""Events in rounds, and the wait until they are counted."""

from __future__ import annotations

import time

from redis import Redis

from penstock.definitions import MetricDefinition
from penstock.warehouse.clickhouse_client import Warehouse
from tests.chaos.pipeline.kill_metrics import emit, totals
from tests.waiting import wait_until

PATIENCE_S = 180


class Rounds:
    """The same events again and again, for every metric; knows what must be in each table of the first."""

    def __init__(
        self, events: int, redis_url: str, warehouse: Warehouse, metrics: tuple[MetricDefinition, ...]
    ) -> None:
        self._events = events
        self._metrics = metrics
        self._redis_url = redis_url
        self._warehouse = warehouse
        self._at_ms = int(time.time() * 1000)
        self.count = 0
        self._one = (0, 0, 0, 0)

    def emit(self) -> None:
        with Redis.from_url(self._redis_url) as redis:
            for definition in self._metrics:
                self._one = emit(redis, definition, self._events, self._at_ms)
            # On disk, or a Redis that is killed might have lost what the test counts on.
            assert redis.execute_command("WAITAOF", 1, 0, 10_000)[0] == 1
        self.count += 1

    def expected(self, rounds: int | None = None) -> set[tuple[int, ...]]:
        return {tuple(number * (self.count if rounds is None else rounds) for number in self._one)}

    def found(self) -> set[tuple[int, ...]]:
        """What the tables of the first metric say: one answer, if they agree."""
        return set(totals(self._warehouse, self._metrics[0]).values())

    def wait_until_counted(self) -> None:
        wait_until(
            lambda: min(events for events, *_ in self.found()) >= self.count * self._events,
            PATIENCE_S,
            f"round {self.count} is counted",
        )
