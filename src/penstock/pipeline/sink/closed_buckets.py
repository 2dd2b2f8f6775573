"""The buckets that have passed: their percentiles are written down, once a minute.

Series of many points are quick where this was done and right where it was not, so it never holds up a batch
for long and never fails one. A bucket that late events reach is written again. What a process that was killed
left undone is done by the next, as far back as it looks; what lies further back stays as it is.
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

EVERY_S = 60.0
GRACE_S = 30.0
"""A bucket has passed when no more events of it are expected: this long after its end."""

_TIERS = tuple(tier for tier in TIERS if tier.percentiles)

BUDGET_S = 1.0
"""About as long a batch is held up; the rest is done after the next one."""


class PassedBuckets:
    """One metric's buckets, by tier, from the first one that has changed since it was last looked at."""

    def __init__(self, definition: MetricDefinition, warehouse: Warehouse) -> None:
        self._definition = definition
        self._warehouse = warehouse
        self._since: dict[Tier, int] = {}
        self._due = 0.0

    def begin(self, newest_s: float | None) -> None:
        """Look back from the newest event there is: what came last may not have been done."""
        if newest_s is not None:
            for tier in _TIERS:
                self._reach(tier, int(newest_s) - CHUNK_BUCKETS * tier.width_s)
        self._due = time.time() + EVERY_S

    def touched(self, first_s: int) -> None:
        """Events of this time and later were counted."""
        for tier in _TIERS:
            self._reach(tier, first_s)

    def write_if_due(self, now_s: float) -> None:
        if now_s >= self._due and self.write(now_s):
            self._due = now_s + EVERY_S

    def write(self, now_s: float) -> bool:
        """Write down what has passed; returns False if some is left because it would take too long.

        While ClickHouse is away or refuses, nothing happens, and it is tried again a minute later.
        """
        began = time.monotonic()
        try:
            for tier, since_s in self._since.items():
                until_s = int(now_s - GRACE_S) // tier.width_s * tier.width_s
                step = CHUNK_BUCKETS * tier.width_s
                for start in range(since_s, until_s, step):
                    if time.monotonic() - began > BUDGET_S:
                        return False
                    end = min(start + step, until_s)
                    write_percentiles(self._warehouse, self._definition, tier, start, end)
                    self._since[tier] = end
        except (WarehouseUnavailable, WarehouseRefused) as error:
            log.warning("%s: percentiles were not written down: %s", self._definition.name, error)
        return True

    def _reach(self, tier: Tier, moment_s: int) -> None:
        start = moment_s // tier.width_s * tier.width_s
        self._since[tier] = min(start, self._since.get(tier, start))
