"""What was found out lately, so that it is not found out anew with every series."""

from __future__ import annotations

import time
from collections.abc import Hashable

from penstock.definitions import MetricDefinition
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.series.readings import Selection

MOST = 10_000


class Remembered:
    """Keys, each for so many seconds. More than MOST of them at once are all forgotten."""

    def __init__(self, for_s: float) -> None:
        self._for_s = for_s
        self._until: dict[Hashable, float] = {}

    def add(self, key: Hashable) -> None:
        if len(self._until) >= MOST:
            self._until.clear()
        self._until[key] = time.monotonic() + self._for_s

    def __contains__(self, key: Hashable) -> bool:
        return self._until.get(key, 0.0) > time.monotonic()


def thing(warehouse: Warehouse, definition: MetricDefinition, selection: Selection) -> Hashable:
    """Names what is asked about: whose it is, and in which database."""
    return (warehouse.url, definition.name, selection.rollup, tuple(sorted(selection.parameters.items())))
