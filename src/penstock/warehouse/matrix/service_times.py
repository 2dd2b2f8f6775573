"""How long the work of one queue takes: the sum of its run times, from the finest tier that has some."""

from __future__ import annotations

from typing import NamedTuple

from penstock.model import Scope
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.matrix.matrix_queries import queue_rows
from penstock.warehouse.tiers import FINE, HOUR, MINUTE, Tier

WINDOWS: tuple[tuple[Tier, int], ...] = ((FINE, 600), (MINUTE, 7_200), (HOUR, 86_400))
"""Tier and length of a window in seconds. A quiet queue is measured over a longer one."""

MIN_FINISHED = 10
"""A window with fewer finished messages is measured over the next longer one too."""


class ServiceTime(NamedTuple):
    """Run times of the messages or tasks that finished in a window. `end_s` is the end of the window."""

    finished: int
    run_ms: int
    window_s: int
    end_s: int


def read_service_time(
    warehouse: Warehouse, scope: Scope, queue: str, group: str, end_s: int
) -> ServiceTime | None:
    """Return the run times of a group; None if none is known. A run queue has the group ''.

    Raises WarehouseUnavailable.
    """
    measured: ServiceTime | None = None
    for tier, window_s in WINDOWS:
        until_s = -(-end_s // tier.width_s) * tier.width_s
        [row] = warehouse.query(
            "SELECT sum(run_ms_count) AS finished, sum(run_ms_sum) AS run_ms "
            f"FROM {queue_rows(tier, until_s - window_s, until_s)} "
            "AND queue = {queue:String} AND `group` = {group:String}",
            {**scope._asdict(), "queue": queue, "group": group},
        )
        if row["finished"]:
            measured = ServiceTime(int(row["finished"]), int(row["run_ms"]), window_s, min(end_s, until_s))
        if measured is not None and measured.finished >= MIN_FINISHED:
            return measured
    return measured
