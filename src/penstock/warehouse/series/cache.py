"""Short-lived facts about series that save queries."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

from penstock.definitions import MetricDefinition
from penstock.warehouse.series.readings import Selection


class ExpiringSet:
    """A set whose keys expire after `ttl_s` seconds. A set that reaches `max_keys` is emptied."""

    def __init__(
        self, ttl_s: float, *, max_keys: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ttl_s = ttl_s
        self._max_keys = max_keys
        self._clock = clock
        self._expiry: dict[Hashable, float] = {}

    def add(self, key: Hashable) -> None:
        if len(self._expiry) >= self._max_keys:
            self._expiry.clear()
        self._expiry[key] = self._clock() + self._ttl_s

    def __contains__(self, key: Hashable) -> bool:
        return self._expiry.get(key, 0.0) > self._clock()


class SeriesCache:
    """Facts about the series of one warehouse, keyed by `subject_key`. Threads may share it."""

    def __init__(self) -> None:
        self.missing_gauges = ExpiringSet(60)
        """Subjects with the gauges they lack; most queues have no concurrency limit."""

        self.no_history = ExpiringSet(60)
        """Subjects that were never observed before a given time."""

        self.many_rows = ExpiringSet(600)
        """Subjects with too many rows per point to merge here; ClickHouse aggregates them."""


def subject_key(definition: MetricDefinition, selection: Selection) -> Hashable:
    """Return the identity of what a series describes, such as one queue of one tenant."""
    return (definition.name, selection.rollup, tuple(sorted(selection.parameters.items())))
