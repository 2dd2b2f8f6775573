"""How broker processes were over time: event loop, connections, waiting requests, memory, processor."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request

from penstock.api.http.parameters import Text
from penstock.api.http.response import iso_or_none
from penstock.api.routes.analytics import COUNTS
from penstock.api.schemas.time_window import Asked, Window, ratio
from penstock.api.services import Services, get_services
from penstock.clock import iso

router = APIRouter(prefix="/api/v1/analytics", tags=["analytics"])

Hostname = Annotated[Text, Query(description="brokers on one machine; all if left out")]
Worker = Annotated[int | None, Query(ge=0, le=10_000, description="one number among the brokers of a port")]
Each = Annotated[bool, Query(alias="each", description="a series per broker process instead of one of all")]


@router.get("/worker-metrics")
async def worker_series(
    request: Request,
    asked: Asked,
    hostname: Hostname = None,
    worker: Worker = None,
    each: Each = False,
) -> dict[str, Any]:
    """What broker processes did and how they were. Averages are per process."""
    return await _answer(get_services(request), asked, hostname, worker, each, _worker_point)


@router.get("/system-metrics")
async def system_series(
    request: Request,
    asked: Asked,
    hostname: Hostname = None,
    worker: Worker = None,
    each: Each = False,
) -> dict[str, Any]:
    """What broker processes took of their machines: processor, memory, database connections."""
    return await _answer(get_services(request), asked, hostname, worker, each, _system_point)


async def _answer(
    services: Services,
    asked: Window,
    hostname: str | None,
    worker: int | None,
    each: bool,
    point: Callable[[Any], dict[str, Any]],
) -> dict[str, Any]:
    rows = await services.broker.store.worker_minutes.read_health(
        asked.start,
        asked.end,
        asked.width,
        each=each,
        hostname=hostname or None,
        worker=worker,
    )
    processes: dict[tuple[Any, ...], dict[datetime, dict[str, Any]]] = {}
    for row in rows:
        process = (row.hostname, row.worker, row.pid, row.started_at)
        processes.setdefault(process, {})[row.bucket_at] = _covered(row) | point(row)
    gap = {**dict.fromkeys(point(defaultdict(int))), "coveredSeconds": 0, "workers": 0}
    if not each:
        found = next(iter(processes.values()), {})
        return {**asked.described(), "series": asked.points(found, gap)}
    return {
        **asked.described(),
        "workers": [
            {
                "hostname": name,
                "worker": number,
                "pid": pid,
                "startedAt": iso_or_none(started_at),
                # A process covers its own life and no more: before and after there is nothing to tell.
                "series": [{"bucket": iso(at), "timestamp": iso(at), **of} for at, of in found.items()],
            }
            for (name, number, pid, started_at), found in processes.items()
        ],
    }


def _covered(row: Any) -> dict[str, Any]:
    return {"coveredSeconds": round(row["covered_s"], 3), "workers": row["workers"]}


def _worker_point(row: Any) -> dict[str, Any]:
    samples = row["samples"]
    return {
        **{name: row[column] for name, column in COUNTS.items()},
        "eventLoopLate": {
            "avgMs": ratio(row["late_sum_ms"], row["late_count"]),
            "maxMs": round(row["late_max_ms"], 3) if row["late_count"] else None,
        },
        "connections": {
            "busyAvg": ratio(row["busy_connections_sum"], samples),
            "busyMax": row["busy_connections_max"],
            "freeAvg": ratio(row["free_connections_sum"], samples),
            "freeMin": row["free_connections_min"],
            "waitersAvg": ratio(row["connection_waiters_sum"], samples),
            "waitersMax": row["connection_waiters_max"],
        },
        "pending": {
            "avg": ratio(row["pending_requests_sum"], samples),
            "max": row["pending_requests_max"],
            "operations": {
                name: {"avg": ratio(seen["sum"], samples), "max": seen["max"]}
                for name, seen in json.loads(row["pending"] or "{}").items()
            },
        },
        "parkedPops": {"avg": ratio(row["parked_pops_sum"], samples), "max": row["parked_pops_max"]},
        "spilled": {"avg": ratio(row["spilled_sum"], samples), "max": row["spilled_max"]},
    }


def _system_point(row: Any) -> dict[str, Any]:
    samples = row["samples"]
    return {
        "cpuSeconds": round(row["cpu_s"], 3),
        "cpuPercent": ratio(row["cpu_s"] * 100, row["process_s"]),
        "residentBytes": {
            "avg": ratio(row["resident_bytes_sum"], samples, 0),
            "max": row["resident_bytes_max"],
        },
        "databaseConnections": {
            "busyAvg": ratio(row["busy_connections_sum"], samples),
            "busyMax": row["busy_connections_max"],
        },
    }
