"""Routes for the health of broker processes over time: event loop, connections, requests, memory, CPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request

from penstock.api.access import PLATFORM_ADMIN_ONLY, PlatformReadAccess
from penstock.api.http.parameters import Text
from penstock.api.http.response import iso_or_none
from penstock.api.routes.analytics import COUNTERS
from penstock.api.schemas.time_window import TimeWindow, WindowParameter, ratio
from penstock.api.services import Services, get_services
from penstock.broker.durable_store import WorkerHealthBucket
from penstock.clock import iso

router = APIRouter(prefix="/api/v1/analytics", tags=["analytics"])

Hostname = Annotated[Text, Query(description="brokers on one machine; default: all")]
Worker = Annotated[
    int | None, Query(ge=0, le=10_000, description="worker slot among the brokers behind a port")
]
PerProcess = Annotated[
    bool, Query(alias="each", description="one series per broker process instead of one of all")
]

Point = dict[str, object]
ProcessKey = tuple[str | None, int | None, int | None, datetime | None]
"""Hostname, worker slot, pid and start time; all None for all brokers together."""


@dataclass(frozen=True, slots=True)
class ProcessSelection:
    """The window of a request for the health of broker processes, and the processes it is about."""

    window: TimeWindow
    hostname: str | None
    worker: int | None
    per_process: bool


def parse_process_selection(
    window: WindowParameter, hostname: Hostname = None, worker: Worker = None, per_process: PerProcess = False
) -> ProcessSelection:
    return ProcessSelection(window, hostname or None, worker, per_process)


ProcessSelectionParameter = Annotated[ProcessSelection, Depends(parse_process_selection)]


@router.get("/worker-metrics", openapi_extra=PLATFORM_ADMIN_ONLY)
async def worker_series(
    request: Request, caller: PlatformReadAccess, selection: ProcessSelectionParameter
) -> dict[str, object]:
    """Report what broker processes did and how loaded they were. Averages are per process."""
    return await _read_series(get_services(request), selection, _worker_point, WORKER_FIELDS)


@router.get("/system-metrics", openapi_extra=PLATFORM_ADMIN_ONLY)
async def system_series(
    request: Request, caller: PlatformReadAccess, selection: ProcessSelectionParameter
) -> dict[str, object]:
    """Report what broker processes used of their machines: CPU, memory, database connections."""
    return await _read_series(get_services(request), selection, _system_point, SYSTEM_FIELDS)


async def _read_series(
    services: Services,
    selection: ProcessSelection,
    build_point: Callable[[WorkerHealthBucket], Point],
    fields: tuple[str, ...],
) -> dict[str, object]:
    window = selection.window
    buckets = await services.broker.store.worker_minutes.read_health(
        window.start,
        window.end,
        window.width,
        per_process=selection.per_process,
        hostname=selection.hostname,
        worker=selection.worker,
    )
    processes: dict[ProcessKey, dict[datetime, Point]] = {}
    for bucket in buckets:
        key = (bucket.hostname, bucket.worker, bucket.pid, bucket.started_at)
        covered: Point = {"coveredSeconds": round(bucket.covered_s, 3), "workers": bucket.workers}
        processes.setdefault(key, {})[bucket.bucket_at] = covered | build_point(bucket)
    if not selection.per_process:
        gap: Point = {**dict.fromkeys(fields), "coveredSeconds": 0, "workers": 0}
        points = next(iter(processes.values()), {})
        return {**window.to_dict(), "series": window.points(points, gap)}
    return {
        **window.to_dict(),
        "workers": [
            {
                "hostname": process_hostname,
                "worker": worker_slot,
                "pid": pid,
                "startedAt": iso_or_none(started_at),
                # A process covers its own life only: before and after it there are no points, not even gaps.
                "series": [
                    {"bucket": iso(bucket_at), "timestamp": iso(bucket_at), **point}
                    for bucket_at, point in points.items()
                ],
            }
            for (process_hostname, worker_slot, pid, started_at), points in processes.items()
        ],
    }


WORKER_FIELDS = (*COUNTERS, "eventLoopLate", "connections", "pending", "parkedPops", "spilled")


def _worker_point(bucket: WorkerHealthBucket) -> Point:
    samples = bucket.samples
    return {
        **{name: getattr(bucket, column) for name, column in COUNTERS.items()},
        "eventLoopLate": {
            "avgMs": ratio(bucket.late_sum_ms, bucket.late_count),
            "maxMs": round(bucket.late_max_ms, 3) if bucket.late_count else None,
        },
        "connections": {
            "busyAvg": ratio(bucket.busy_connections_sum, samples),
            "busyMax": bucket.busy_connections_max,
            "freeAvg": ratio(bucket.free_connections_sum, samples),
            "freeMin": bucket.free_connections_min,
            "waitersAvg": ratio(bucket.connection_waiters_sum, samples),
            "waitersMax": bucket.connection_waiters_max,
        },
        "pending": {
            "avg": ratio(bucket.pending_requests_sum, samples),
            "max": bucket.pending_requests_max,
            "operations": {
                name: {"avg": ratio(waiting["sum"], samples), "max": waiting["max"]}
                for name, waiting in json.loads(bucket.pending or "{}").items()
            },
        },
        "parkedPops": {"avg": ratio(bucket.parked_pops_sum, samples), "max": bucket.parked_pops_max},
        "spilled": {"avg": ratio(bucket.spilled_sum, samples), "max": bucket.spilled_max},
    }


SYSTEM_FIELDS = ("cpuSeconds", "cpuPercent", "residentBytes", "databaseConnections")


def _system_point(bucket: WorkerHealthBucket) -> Point:
    samples = bucket.samples
    return {
        "cpuSeconds": round(bucket.cpu_s, 3),
        "cpuPercent": ratio(bucket.cpu_s * 100, bucket.process_s),
        "residentBytes": {
            "avg": ratio(bucket.resident_bytes_sum, samples, 0),
            "max": bucket.resident_bytes_max,
        },
        "databaseConnections": {
            "busyAvg": ratio(bucket.busy_connections_sum, samples),
            "busyMax": bucket.busy_connections_max,
        },
    }
