"""The series of a queue and of an environment, as the metrics routes return them.

Rows without a group hold values of the whole queue: the enqueued messages and the queue's gauges. Rows of a
group hold what the group dequeued, completed and failed, its wait times, and its own gauges. Therefore:

- a queue's counters and samples are summed over all rows, and its gauges come from the rows without a group;
- a group's counters, samples and gauges come from its own rows, and `enqueued` from the rows without a group;
- an environment has its own tables, with sums over all its queues and its own gauges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from penstock.definitions import QUEUE
from penstock.model import Scope
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import tier_table
from penstock.warehouse.series.carry_forward import carry_forward
from penstock.warehouse.series.completeness import read_completeness
from penstock.warehouse.series.points import SeriesReader
from penstock.warehouse.series.queue_columns import build_columns
from penstock.warehouse.series.readings import Selection
from penstock.warehouse.series.series_fields import required_columns, select_fields
from penstock.warehouse.series.series_response import Series
from penstock.warehouse.series.window import SeriesRequest, resolve_window
from penstock.warehouse.tiers import HOUR

ENVIRONMENT_ROLLUP = "environment"
_TENANT_CONDITION = " AND ".join(
    f"{name} = {{{name}:String}}" for name in ("organization", "project", "environment")
)
_GROUP_MEASURES = tuple(m.name for m in (*QUEUE.counters, *QUEUE.samples) if m.name != "enqueued")


def queue_series(
    reader: SeriesReader,
    scope: Scope,
    queue: str,
    *,
    group: str | None = None,
    **request: Unpack[SeriesRequest],
) -> Series:
    """Return the series of a queue or of one of its groups. An unknown queue has points without values.

    Raises InvalidRequest for an invalid window or field, and WarehouseUnavailable if ClickHouse is
    unreachable.
    """
    subject = {"queue": queue} if group is None else {"queue": queue, "group": group}
    return _read_series(reader, subject, _select_queue(scope, queue, group), request)


def environment_series(reader: SeriesReader, scope: Scope, **request: Unpack[SeriesRequest]) -> Series:
    """Return the series of a whole environment, from its own tables."""
    selection = Selection(_TENANT_CONDITION, _tenant_parameters(scope), rollup=ENVIRONMENT_ROLLUP)
    return _read_series(reader, {"environment": scope.environment}, selection, request)


def known_queues(warehouse: Warehouse, scope: Scope) -> list[str]:
    """Return the names of all queues of an environment that have metrics, sorted."""
    rows = warehouse.query(
        f"SELECT DISTINCT queue FROM {tier_table(QUEUE, HOUR)} WHERE {_TENANT_CONDITION} ORDER BY queue",
        _tenant_parameters(scope),
    )
    return [str(row["queue"]) for row in rows]


def queue_is_known(warehouse: Warehouse, scope: Scope, queue: str, group: str | None = None) -> bool:
    """Return whether the queue, or one of its groups, has metrics. It may have been deleted."""
    is_group = "" if group is None else " AND `group` = {group:String}"
    rows = warehouse.query(
        f"SELECT 1 FROM {tier_table(QUEUE, HOUR)} "
        f"WHERE {_TENANT_CONDITION} AND queue = {{queue:String}}{is_group} LIMIT 1",
        {**_tenant_parameters(scope), "queue": queue, "group": group or ""},
    )
    return bool(rows)


def _read_series(
    reader: SeriesReader, subject: Mapping[str, object], selection: Selection, request: SeriesRequest
) -> Series:
    fields = select_fields(request.get("fields"))
    counted_until_s = request.get("counted_until_s")
    window = resolve_window(**request)
    prefix = "env_" if selection.rollup else ""
    pending_completeness = reader.submit(read_completeness, reader.warehouse, QUEUE, window)
    points = reader.read_points(QUEUE, window, selection, required_columns(fields, prefix))
    completeness = pending_completeness.result()
    gauges = carry_forward(window, list(points.last_known.gauges), points)
    complete = completeness.of_points(window, counted_until_s)
    columns = build_columns(window, points, gauges, fields, prefix, complete)
    return Series(subject, window, completeness, counted_until_s, columns)


def _select_queue(scope: Scope, queue: str, group: str | None) -> Selection:
    where = f"{_TENANT_CONDITION} AND queue = {{queue:String}}"
    parameters = {**_tenant_parameters(scope), "queue": queue}
    if group is None:
        return Selection(where, parameters, gauge_condition="`group` = ''")
    is_group = "`group` = {group:String}"
    return Selection(
        f"{where} AND `group` IN ('', {{group:String}})",
        {**parameters, "group": group},
        count_conditions={"enqueued": "`group` = ''", **dict.fromkeys(_GROUP_MEASURES, is_group)},
        gauge_condition=is_group,
    )


def _tenant_parameters(scope: Scope) -> dict[str, str]:
    return {
        "organization": scope.organization,
        "project": scope.project,
        "environment": scope.environment,
    }
