"""Write the percentiles of closed buckets, once a minute.

A series query is fast for buckets with written percentiles and correct for the others. So this work never
delays a batch for long and never fails one. A bucket that receives late events is written again. After a
restart, the process writes the buckets that the previous one left, within a limited time; older buckets stay
as they are.
"""

from __future__ import annotations

import logging
import time

from penstock.definitions import MetricDefinition
from penstock.errors import WarehouseUnavailable
from penstock.warehouse.clickhouse_client import Warehouse, WarehouseRefused
from penstock.warehouse.series.closed_percentiles import CHUNK_BUCKETS, write_percentiles
from penstock.warehouse.tiers import TIERS, Tier

log = logging.getLogger(__name__)

INTERVAL_S = 60.0
GRACE_S = 30.0
"""A bucket counts as closed this long after its end, when no more events are expected."""

_TIERS = tuple(tier for tier in TIERS if tier.stores_percentiles)

BUDGET_S = 1.0
"""Approximate limit of the time per batch; the rest is written after the next batch."""


class ClosedBuckets:
    """Tracks per tier the first bucket of a metric whose percentiles are not up to date."""

    def __init__(
        self, definition: MetricDefinition, warehouse: Warehouse, *, budget_s: float = BUDGET_S
    ) -> None:
        self.budget_s = budget_s
        self._definition = definition
        self._warehouse = warehouse
        self._first_changed_s: dict[Tier, int] = {}
        self._due_s = 0.0

    def resume(self, newest_s: float | None) -> None:
        """Schedule the buckets before the newest event: the previous process may not have written them."""
        if newest_s is not None:
            for tier in _TIERS:
                self._extend_back(tier, int(newest_s) - CHUNK_BUCKETS * tier.width_s)
        self._due_s = time.time() + INTERVAL_S

    def mark_changed(self, first_s: int) -> None:
        """Record that events from `first_s` on were counted."""
        for tier in _TIERS:
            self._extend_back(tier, first_s)

    def write_if_due(self, now_s: float) -> None:
        """Write the closed buckets if the last write is a minute ago."""
        if now_s >= self._due_s and self.write(now_s):
            self._due_s = now_s + INTERVAL_S

    def write(self, now_s: float) -> bool:
        """Write the closed buckets; returns False if the time budget ended first.

        If ClickHouse is unreachable or refuses, this logs a warning and returns True; the next write, a
        minute later, tries again.
        """
        started = time.monotonic()
        try:
            for tier, first_s in self._first_changed_s.items():
                until_s = int(now_s - GRACE_S) // tier.width_s * tier.width_s
                step = CHUNK_BUCKETS * tier.width_s
                for start in range(first_s, until_s, step):
                    if time.monotonic() - started > self.budget_s:
                        return False
                    end = min(start + step, until_s)
                    write_percentiles(self._warehouse, self._definition, tier, start, end)
                    self._first_changed_s[tier] = end
        except (WarehouseUnavailable, WarehouseRefused) as error:
            log.warning("%s: cannot write percentiles: %s", self._definition.name, error)
        return True

    def _extend_back(self, tier: Tier, time_s: int) -> None:
        start = time_s // tier.width_s * tier.width_s
        self._first_changed_s[tier] = min(start, self._first_changed_s.get(tier, start))
