"""The series of a queue and of an environment: what the metrics routes answer with.

Rows without a group speak for the queue as a whole: what was enqueued, and the queue's gauges. Rows of a
group carry what that group dequeued, finished and failed, its waits, and its own gauges. Hence:

- a queue's counters and samples are summed over all rows, its gauges come from the rows without a group;
- a group's counters, samples and gauges come from its own rows, and `enqueued` from the rows without a group;
- an environment has tables of its own, with sums over all its queues and gauges of the whole.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypedDict, Unpack

from penstock.clock import iso, to_utc
from penstock.definitions import QUEUE
from penstock.model import Scope
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import tier_table
from penstock.warehouse.series.beside import beside
from penstock.warehouse.series.carry_forward import carry_forward
from penstock.warehouse.series.completeness import read_completeness
from penstock.warehouse.series.entries import chosen_fields, columns_of, entries
from penstock.warehouse.series.points import read_points
from penstock.warehouse.series.readings import Selection
from penstock.warehouse.series.window import window
from penstock.warehouse.tiers import HOUR

ENVIRONMENT = "environment"
_TENANT = " AND ".join(f"{name} = {{{name}:String}}" for name in ("organization", "project", "environment"))
_OF_THE_GROUP = tuple(m.name for m in (*QUEUE.counters, *QUEUE.samples) if m.name != "enqueued")


class Asked(TypedDict, total=False):
    """A window and a choice of fields. `period` is 30m unless said, `now` is the clock, in seconds, for those
    who own it; `counted_until`: every event up to then was counted, which only the pipeline's streams tell.
    """

    period: str | None
    start: datetime | None
    end: datetime | None
    resolution: str | None
    fields: Sequence[str] | None
    counted_until: float | None
    now: float | None


def queue_series(
    client: Warehouse, scope: Scope, queue: str, *, group: str | None = None, **asked: Unpack[Asked]
) -> dict[str, Any]:
    """The queue's series, ready to be JSON. A queue nobody measured has points without values.

    Raises InvalidRequest for a window or a field that cannot be,
    WarehouseUnavailable if ClickHouse is away.
    """
    answer: dict[str, Any] = {"queue": queue}
    if group is not None:
        answer["group"] = group
    return answer | _series(client, _of_queue(scope, queue, group), asked)


def environment_series(client: Warehouse, scope: Scope, **asked: Unpack[Asked]) -> dict[str, Any]:
    """The same of an environment as a whole, from tables of its own."""
    selection = Selection(_TENANT, _tenant(scope), rollup=ENVIRONMENT)
    return {"environment": scope.environment} | _series(client, selection, asked)


def known_queues(client: Warehouse, scope: Scope) -> list[str]:
    """The queues of one environment that were ever measured, by name."""
    rows = client.query(
        f"SELECT DISTINCT queue FROM {tier_table(QUEUE, HOUR)} WHERE {_TENANT} ORDER BY queue",
        _tenant(scope),
    )
    return [str(row["queue"]) for row in rows]


def queue_is_known(client: Warehouse, scope: Scope, queue: str) -> bool:
    """Whether the queue was ever measured; it may be deleted."""
    rows = client.query(
        f"SELECT 1 FROM {tier_table(QUEUE, HOUR)} WHERE {_TENANT} AND queue = {{queue:String}} LIMIT 1",
        {**_tenant(scope), "queue": queue},
    )
    return bool(rows)


def environment_is_known(client: Warehouse, scope: Scope) -> bool:
    """Whether anything was ever measured in the environment."""
    table = tier_table(QUEUE, HOUR, ENVIRONMENT)
    return bool(client.query(f"SELECT 1 FROM {table} WHERE {_TENANT} LIMIT 1", _tenant(scope)))


def _series(client: Warehouse, selection: Selection, asked: Asked) -> dict[str, Any]:
    fields = chosen_fields(asked.get("fields"))
    now, counted_until = asked.get("now"), asked.get("counted_until")
    span = window(
        period=asked.get("period", "30m"),
        start=asked.get("start"),
        end=asked.get("end"),
        resolution=asked.get("resolution"),
        now_s=time.time() if now is None else now,
    )
    prefix = "env_" if selection.rollup else ""
    asked_beside = beside(read_completeness, client, QUEUE, span)
    points = read_points(client, QUEUE, span, selection, columns_of(fields, prefix))
    completeness = asked_beside.result()
    gauges = carry_forward(span, list(points.before.gauges), points)
    return {
        "period": {"start": iso(to_utc(span.start_s)), "end": iso(to_utc(min(span.end_s, span.now_s)))},
        "resolution": span.resolution,
        "tier": span.tier.name,
        "freshness": completeness.freshness,
        "completeness": completeness.described(counted_until),
        "timeseries": entries(span, points, gauges, fields, prefix, counted_until),
    }


def _of_queue(scope: Scope, queue: str, group: str | None) -> Selection:
    where = f"{_TENANT} AND queue = {{queue:String}}"
    parameters = {**_tenant(scope), "queue": queue}
    if group is None:
        return Selection(where, parameters, observed="`group` = ''")
    own = "`group` = {group:String}"
    return Selection(
        f"{where} AND `group` IN ('', {{group:String}})",
        {**parameters, "group": group},
        counted={"enqueued": "`group` = ''", **dict.fromkeys(_OF_THE_GROUP, own)},
        observed=own,
    )


def _tenant(scope: Scope) -> dict[str, str]:
    return {
        "organization": scope.organization,
        "project": scope.project,
        "environment": scope.environment,
    }
