"""The series of one queue: what the metrics route answers with.

Rows without a group speak for the queue as a whole: what was enqueued, and the queue's gauges. Rows of a
group carry what that group dequeued, finished and failed, its waits, and its own gauges. Hence:

- a queue's counters and samples are summed over all rows, its gauges come from the rows without a group;
- a group's counters, samples and gauges come from its own rows, and `enqueued` from the rows without a group.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from penstock.clock import iso, to_utc
from penstock.definitions import QUEUE
from penstock.model import Scope
from penstock.warehouse.carry import Carried, carry_forward, grown_age
from penstock.warehouse.client import Warehouse
from penstock.warehouse.points import Selection, read_before, read_points
from penstock.warehouse.schema import tier_table
from penstock.warehouse.tiers import HOUR
from penstock.warehouse.windows import Window, window

_TENANT = " AND ".join(f"{name} = {{{name}:String}}" for name in ("organization", "project", "environment"))
_GAUGES = tuple(gauge.name for gauge in QUEUE.own_gauges)
_OF_THE_GROUP = tuple(m.name for m in (*QUEUE.counters, *QUEUE.samples) if m.name != "enqueued")


def queue_series(
    client: Warehouse,
    scope: Scope,
    queue: str,
    *,
    group: str | None = None,
    period: str | None = "30m",
    start: datetime | None = None,
    end: datetime | None = None,
    resolution: str | None = None,
    now: float | None = None,
) -> dict[str, Any]:
    """The queue's series, ready to be JSON. A queue nobody measured has points without values.

    Two round trips. Raises InvalidRequest for a window that cannot be, WarehouseUnavailable if ClickHouse is
    away. `now` is the clock, in seconds, for tests that own it.
    """
    asked = window(
        period=period, start=start, end=end, resolution=resolution, now_s=time.time() if now is None else now
    )
    selection = _selection(scope, queue, group)
    points = read_points(client, QUEUE, asked, selection)
    before = read_before(client, QUEUE, asked, selection)
    gauges = carry_forward(asked, _GAUGES, points, before)
    answer: dict[str, Any] = {"queue": queue}
    if group is not None:
        answer["group"] = group
    return answer | {
        "period": {
            "start": iso(to_utc(asked.start_s)),
            "end": iso(to_utc(min(asked.end_s, asked.now_s))),
        },
        "resolution": asked.resolution,
        "tier": asked.tier.name,
        "freshness": iso(to_utc(before.newest_ms / 1000)) if before.newest_ms else None,
        "timeseries": [_entry(asked, points.get(gauge.at_s, {}), gauge) for gauge in gauges],
    }


def known_queues(client: Warehouse, scope: Scope) -> list[str]:
    """The queues of one environment that were ever measured, by name."""
    rows = client.query(
        f"SELECT DISTINCT queue FROM {tier_table(QUEUE, HOUR)} WHERE {_TENANT} ORDER BY queue",
        _tenant(scope),
    )
    return [str(row["queue"]) for row in rows]


def queue_is_known(client: Warehouse, scope: Scope, queue: str) -> bool:
    rows = client.query(
        f"SELECT 1 FROM {tier_table(QUEUE, HOUR)} WHERE {_TENANT} AND queue = {{queue:String}} LIMIT 1",
        {**_tenant(scope), "queue": queue},
    )
    return bool(rows)


def _selection(scope: Scope, queue: str, group: str | None) -> Selection:
    where = f"{_TENANT} AND queue = {{queue:String}}"
    parameters = {**_tenant(scope), "queue": queue}
    if group is None:
        return Selection(where, parameters, counted={}, observed="`group` = ''")
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


def _entry(asked: Window, point: dict[str, Any], gauge: Carried) -> dict[str, Any]:
    p50, p95, p99 = point.get("wait_ms_quantiles", (None, None, None))
    _, run_p95, _ = point.get("run_ms_quantiles", (None, None, None))
    age = gauge.highest["oldest_age_ms"]
    if gauge.carried:
        until = min(gauge.at_s + asked.step_s, asked.now_s)
        age = grown_age(age, gauge.last["depth"], gauge.seen_ms, until)
    running, limit = gauge.highest["running"], gauge.last["limit"]
    return {
        "timestamp": iso(to_utc(gauge.at_s)),
        "throughput": {
            "enqueued": point.get("enqueued", 0),
            "dequeued": point.get("dequeued", 0),
            "completed": point.get("acked", 0),
        },
        "queue_depth": {"max": gauge.highest["depth"], "last": gauge.last["depth"]},
        "latency": {
            "avg_wait_ms": _average(point, "wait_ms"),
            "p50_wait_ms": _rounded(p50),
            "p95_wait_ms": _rounded(p95),
            "p99_wait_ms": _rounded(p99),
            "max_age_ms": age,
        },
        "runtime": {"avg_ms": _average(point, "run_ms"), "p95_ms": _rounded(run_p95)},
        "concurrency": {
            "max": running,
            "limit": limit,
            "utilization_pct": round(100 * running / limit, 1) if running is not None and limit else None,
        },
        "failures": {
            "nack": point.get("nacked", 0),
            "dlq": point.get("dead", 0),
            "ttl_expired": point.get("expired", 0),
        },
        "carried": gauge.carried,
    }


def _average(point: dict[str, Any], sample: str) -> float | None:
    count = point.get(f"{sample}_count", 0)
    return round(point[f"{sample}_sum"] / count, 2) if count else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
