"""Routes of Queen 0.15 that its clients call and that Penstock has in another form, or not at all.

The responses have Queen's fields. A value that Penstock does not have is null, and a switch that it does not
have is off and cannot be switched on.
"""

from __future__ import annotations

import os
import time
from datetime import datetime
from typing import NamedTuple

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import PLATFORM_ADMIN_ONLY, OperateAccess, PlatformAdminAccess, ReadAccess
from penstock.api.http.parameters import Queue
from penstock.api.http.request_parsing import read_json, request_body_schema
from penstock.api.http.response import json_response
from penstock.api.problems import problem_responses
from penstock.api.routes.analytics import QueuePageParameter, read_queue_sums
from penstock.api.schemas.time_window import TimeWindow, WindowParameter, ratio
from penstock.api.services import Services, get_services
from penstock.caller import Caller
from penstock.clock import iso, to_utc
from penstock.errors import DatabaseUnavailable, InvalidRequest, UnknownQueue, WrongState

router = APIRouter(prefix="/api/v1", tags=["queen"])

PUSH_MAINTENANCE_ERROR = (
    "Penstock has no maintenance mode for pushes, so it cannot be switched on. To work on PostgreSQL, stop "
    "it: while it is unreachable, pushes go to the journal and are executed afterwards."
)
POP_MAINTENANCE_ERROR = (
    "Penstock has no maintenance mode for pops, so it cannot be switched on. Stop the consumers instead; "
    "messages that they hold are delivered again when their leases expire."
)


class MaintenanceBody(msgspec.Struct):
    enabled: bool


_maintenance_decoder = msgspec.json.Decoder(MaintenanceBody)


class PendingPushes(NamedTuple):
    """Pushes that were accepted with 202. `failed` is None while PostgreSQL is unreachable."""

    pending: int
    failed: int | None
    is_database_up: bool


@router.get("/system/maintenance")
async def get_maintenance(request: Request, caller: ReadAccess) -> dict[str, object]:
    """Report that maintenance mode is off, and how many accepted pushes are not executed yet."""
    return await _describe_maintenance(get_services(request), caller)


@router.post(
    "/system/maintenance",
    responses=problem_responses(WrongState),
    openapi_extra=request_body_schema(MaintenanceBody),
)
async def set_maintenance(request: Request, caller: OperateAccess) -> dict[str, object]:
    """Accept that maintenance mode stays off; refuse with 422 to switch it on."""
    await _check_stays_off(request, PUSH_MAINTENANCE_ERROR)
    return await _describe_maintenance(get_services(request), caller) | {
        "message": "Maintenance mode is off."
    }


@router.get("/system/maintenance/pop")
async def get_pop_maintenance(caller: ReadAccess) -> dict[str, object]:
    """Report that the maintenance mode of pops is off."""
    return _describe_pop_maintenance()


@router.post(
    "/system/maintenance/pop",
    responses=problem_responses(WrongState),
    openapi_extra=request_body_schema(MaintenanceBody),
)
async def set_pop_maintenance(request: Request, caller: OperateAccess) -> dict[str, object]:
    """Accept that the maintenance mode of pops stays off; refuse with 422 to switch it on."""
    await _check_stays_off(request, POP_MAINTENANCE_ERROR)
    return _describe_pop_maintenance()


@router.get("/system/shared-state")
async def shared_state(caller: ReadAccess) -> dict[str, object]:
    """Report that brokers share no state over UDP."""
    return {
        "enabled": False,
        "reason": "Brokers share their state in PostgreSQL and notify each other through it.",
        "maintenance_mode": False,
        "pop_maintenance_mode": False,
    }


@router.get("/status/buffers")
async def buffers(request: Request, caller: ReadAccess) -> dict[str, object]:
    """Count the pushes that were accepted with 202: those not executed yet, and those that failed."""
    pushes = await _count_pending_pushes(get_services(request), caller)
    return {
        "pending": pushes.pending,
        "failed": pushes.failed,
        "dbHealthy": pushes.is_database_up,
        "worker": os.getpid(),
    }


@router.get("/migration/status")
async def migration_status(caller: ReadAccess) -> dict[str, object]:
    """Report that no migration to another database is running. Penstock has none: use pg_dump."""
    return {"status": "idle", "currentStep": "", "elapsedSeconds": 0}


@router.get("/analytics/postgres-stats", openapi_extra=PLATFORM_ADMIN_ONLY)
async def postgres_statistics(request: Request, caller: PlatformAdminAccess) -> Response:
    """Report PostgreSQL's statistics of this database: cache hits, dead rows, sizes, long statements."""
    statistics = await get_services(request).broker.diagnostics.postgres_statistics()
    return json_response({"timestamp": iso(to_utc(time.time())), **statistics, "bufferUsage": []})


@router.get("/analytics/retention", responses=problem_responses(UnknownQueue))
async def retention(request: Request, caller: ReadAccess, selection: QueuePageParameter) -> dict[str, object]:
    """Count the messages that retention or their time to live removed before every group had finished them.

    Messages that every group has finished are removed without being counted: those fields are null.
    """
    removed: dict[datetime, int] = {}
    for (bucket, _), sums in (await read_queue_sums(get_services(request), caller, selection)).items():
        removed[bucket] = removed.get(bucket, 0) + sums.expired
    return {
        **_window_to_dict(selection.window),
        "series": [
            {"bucket": iso(bucket), **_removed_to_dict(messages)}
            for bucket, messages in sorted(removed.items())
            if messages
        ],
        "totals": _removed_to_dict(sum(removed.values())),
    }


@router.get("/analytics/queue-parked-replicas")
async def parked_pops(
    request: Request, caller: ReadAccess, window: WindowParameter, queue: Queue | None = None
) -> dict[str, object]:
    """Report the waiting pops of each broker process over time, for all queues together."""
    if queue is not None:
        raise InvalidRequest(
            "Waiting pops are counted per broker process, not per queue. Leave out queue.", field="queue"
        )
    buckets = await get_services(request).broker.store.worker_minutes.read_health(
        window.start, window.end, window.width, per_process=True
    )
    replicas = sorted({(bucket.hostname or "", bucket.worker or 0) for bucket in buckets})
    return {
        **_window_to_dict(window),
        "series": [
            {
                "bucket": iso(bucket.bucket_at),
                "queueName": None,
                "hostname": bucket.hostname,
                "workerId": bucket.worker,
                "parkedCount": ratio(bucket.parked_pops_sum, bucket.samples, 2),
            }
            for bucket in buckets
        ],
        "replicas": [{"hostname": hostname, "workerId": worker} for hostname, worker in replicas],
    }


async def _check_stays_off(request: Request, error: str) -> None:
    body = await read_json(request, _maintenance_decoder)
    if body.enabled:
        raise InvalidRequest(error, field="enabled")


async def _describe_maintenance(services: Services, caller: Caller) -> dict[str, object]:
    pushes = await _count_pending_pushes(services, caller)
    return {
        "maintenanceMode": False,
        "popMaintenanceMode": False,
        "bufferedMessages": pushes.pending,
        "bufferHealthy": pushes.is_database_up,
        "bufferStats": {
            "pendingCount": pushes.pending,
            "failedCount": pushes.failed,
            "dbHealthy": pushes.is_database_up,
            "failedFiles": {"count": 0, "totalBytes": 0, "totalMB": 0.0, "failoverCount": 0, "qos0Count": 0},
        },
    }


def _describe_pop_maintenance() -> dict[str, object]:
    return {"popMaintenanceMode": False, "message": "Pop maintenance mode is off."}


async def _count_pending_pushes(services: Services, caller: Caller) -> PendingPushes:
    """Count accepted pushes in the lanes and in the journal of this machine."""
    journal = services.broker.journal
    journaled = journal.depth().records if journal is not None else 0
    try:
        rows = await services.broker.store.operations.statistics(caller.environment)
    except DatabaseUnavailable:
        return PendingPushes(journaled, None, is_database_up=False)
    pending, failed = (
        sum(row.operations for row in rows if row.kind == "push" and row.status == status)
        for status in ("pending", "failed")
    )
    return PendingPushes(pending + journaled, failed, is_database_up=True)


def _window_to_dict(window: TimeWindow) -> dict[str, object]:
    return {
        "timeRange": {"from": iso(window.start), "to": iso(window.end)},
        "bucketMinutes": int(window.width.total_seconds()) // 60,
    }


def _removed_to_dict(messages: int) -> dict[str, object]:
    return {
        "retentionMsgs": None,
        "completedRetentionMsgs": None,
        "evictionMsgs": messages,
        "totalMsgs": None,
        "eventCount": None,
    }
