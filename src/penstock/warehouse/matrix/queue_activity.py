"""Recent activity of all queues of an environment: three queries, however many queues there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from penstock.model import Scope
from penstock.warehouse.clickhouse_client import ResultRow, Warehouse
from penstock.warehouse.matrix.matrix_queries import queue_rows
from penstock.warehouse.schema import QUANTILE_FUNCTION, QUANTILES
from penstock.warehouse.series.packed_maximum import unpack_observed_value
from penstock.warehouse.series.readings import ABSENT
from penstock.warehouse.tiers import FINE, MINUTE

RATE_WINDOW_S = 60
WAIT_MINUTES = 5
CONSUMER_MINUTES = 10
DEAD_MINUTES = 60
DEPTH_MINUTES = 30

_P95 = QUANTILES.index(0.95) + 1
"""The position of the percentile in an array of ClickHouse."""


class QueueActivity(NamedTuple):
    """What the metrics say about one queue."""

    enqueued_per_s: float = 0.0
    acked_per_s: float = 0.0
    wait_p95_ms: float | None = None
    """Of the last WAIT_MINUTES minutes; None without a delivery."""
    dequeued: int = 0
    """In the last CONSUMER_MINUTES minutes."""
    dead: int = 0
    """In the last DEAD_MINUTES minutes."""
    dead_since_s: int | None = None
    """The minute in which the first of them died."""
    depths: Mapping[int, int] = MappingProxyType({})
    """The last observed depth by minute: 0 is the first of DEPTH_MINUTES, the last one is still running."""


IDLE = QueueActivity()


@dataclass(frozen=True, slots=True)
class EnvironmentActivity:
    """The activity of all queues that have any, up to `end_s`."""

    end_s: int
    queues: Mapping[str, QueueActivity]

    def of_queue(self, queue: str) -> QueueActivity:
        """Return the activity of a queue; one without metrics is idle."""
        return self.queues.get(queue, IDLE)

    @property
    def depths_start_s(self) -> int:
        """The start of the first minute of `QueueActivity.depths`."""
        return minute_end(self.end_s) - DEPTH_MINUTES * MINUTE.width_s


def minute_end(end_s: int) -> int:
    """Return the end of the minute that is running at a time."""
    return (end_s // MINUTE.width_s + 1) * MINUTE.width_s


def read_activity(warehouse: Warehouse, scope: Scope, end_s: int) -> EnvironmentActivity:
    """Read the activity of all queues up to a time. Raises WarehouseUnavailable."""
    end_s = end_s // FINE.width_s * FINE.width_s
    parameters = scope._asdict()
    activity: dict[str, QueueActivity] = {}
    for row in _read_history(warehouse, parameters, end_s):
        activity[row["queue"]] = QueueActivity(
            dequeued=row["taken"],
            dead=row["died"],
            dead_since_s=row["died_since"] if row["died"] else None,
            depths=dict(row["depths"]),
        )
    for row in _read_waits(warehouse, parameters, end_s):
        known = activity.get(row["queue"], IDLE)
        activity[row["queue"]] = known._replace(wait_p95_ms=round(float(row["p95"]), 2))
    for row in _read_rates(warehouse, parameters, end_s):
        known = activity.get(row["queue"], IDLE)
        activity[row["queue"]] = known._replace(
            enqueued_per_s=round(row["enqueued_sum"] / RATE_WINDOW_S, 3),
            acked_per_s=round(row["acked_sum"] / RATE_WINDOW_S, 3),
        )
    return EnvironmentActivity(end_s, activity)


def _read_rates(warehouse: Warehouse, parameters: Mapping[str, object], end_s: int) -> list[ResultRow]:
    return warehouse.query(
        f"SELECT queue, sum(enqueued) AS enqueued_sum, sum(acked) AS acked_sum "
        f"FROM {queue_rows(FINE, end_s - RATE_WINDOW_S, end_s)} GROUP BY queue",
        parameters,
    )


def _read_waits(warehouse: Warehouse, parameters: Mapping[str, object], end_s: int) -> list[ResultRow]:
    until_s = minute_end(end_s)
    name, _, levels = QUANTILE_FUNCTION.partition("(")
    return warehouse.query(
        f"SELECT queue, {name}Merge({levels}(wait_ms_digest)[{_P95}] AS p95 "
        f"FROM {queue_rows(MINUTE, until_s - (WAIT_MINUTES + 1) * MINUTE.width_s, until_s)} "
        f"AND wait_ms_count > 0 GROUP BY queue",
        parameters,
    )


def _read_history(warehouse: Warehouse, parameters: Mapping[str, object], end_s: int) -> list[ResultRow]:
    until_s = minute_end(end_s)
    start_s = until_s - DEPTH_MINUTES * MINUTE.width_s
    depth = unpack_observed_value("maxIf(depth_last, `group` = '')", str(ABSENT))
    return warehouse.query(
        f"SELECT queue, sum(taken_sum) AS taken, sum(died_sum) AS died, "
        f"{start_s} + {MINUTE.width_s} * minIf(minute, died_sum > 0) AS died_since, "
        f"groupArrayIf((minute, depth), depth != {ABSENT} AND minute >= 0) AS depths FROM ("
        f"SELECT queue, intDiv(toInt64(toUnixTimestamp(bucket)) - {start_s}, {MINUTE.width_s}) AS minute, "
        f"sumIf(dequeued, bucket >= toDateTime({end_s - CONSUMER_MINUTES * 60}, 'UTC')) AS taken_sum, "
        f"sum(dead) AS died_sum, {depth} AS depth "
        f"FROM {queue_rows(MINUTE, until_s - DEAD_MINUTES * MINUTE.width_s, until_s)} "
        f"GROUP BY queue, minute) GROUP BY queue",
        parameters,
    )
