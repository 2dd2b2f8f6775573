"""Routes for status pages: totals, queues, messages, and pushed messages over time."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import PLATFORM_ADMIN_ONLY, PlatformReadAccess, ReadAccess
from penstock.api.http.parameters import Group, Limit, Offset, Partition, Queue, Text, Timestamp
from penstock.api.http.response import json_response
from penstock.api.minute_sums import read_environment_buckets
from penstock.api.problems import problem_responses
from penstock.api.routes.message_admin import MessageSelection, MessageStatus, read_message_page
from penstock.api.routes.queues import (
    describe_queue,
    describe_totals,
    message_totals,
    queue_fields,
    unknown_queue,
)
from penstock.api.schemas.time_window import parse_window
from penstock.api.services import get_services
from penstock.broker.durable_store import QueueWindow
from penstock.caller import Caller
from penstock.clock import iso
from penstock.errors import UnknownGroup, UnknownPartition, UnknownQueue

if TYPE_CHECKING:
    from penstock.warehouse.series.series_response import SeriesResponse

router = APIRouter(prefix="/api/v1", tags=["status"])

RESOLUTIONS = {"minute": "1m", "hour": "1h"}
Interval = Literal["minute", "hour"]
START = Query(None, alias="from", description="start of the window; default: an hour ago")
END = Query(None, alias="to", description="end of the window; default: now")


@router.get("/status")
async def status(
    request: Request, caller: ReadAccess, namespace: Text = None, task: Text = None
) -> dict[str, object]:
    """Return current totals over all queues."""
    return await describe_totals(get_services(request), caller, namespace, task)


@router.get("/status/reconciliation", openapi_extra=PLATFORM_ADMIN_ONLY)
async def last_reconciliation(request: Request, caller: PlatformReadAccess) -> dict[str, object]:
    """Report the last comparison of totals and positions with the log.

    `drift` is the number of messages by which totals were wrong, `orphans` the number of rows without an
    owner. Both were corrected.
    """
    report = await get_services(request).broker.store.reconciliation.latest()
    if report is None:
        return {"endedAt": None}
    return {
        "beganAt": iso(report.began_at),
        "endedAt": iso(report.ended_at),
        "queues": report.queues,
        "partitions": report.partitions,
        "positions": report.positions,
        "drift": report.drift,
        "orphans": report.orphans,
        "findings": json.loads(report.findings),
    }


@router.get("/status/queues")
async def list_queues(
    request: Request,
    caller: ReadAccess,
    namespace: Text = None,
    task: Text = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> dict[str, object]:
    """List queues by name with their totals."""
    queues = await get_services(request).broker.store.catalog.list_holdings(
        caller.environment, namespace=namespace or None, task=task or None, limit=limit, offset=offset
    )
    return {
        "queues": [{**queue_fields(queue), "messages": message_totals(queue)} for queue in queues],
        "total": queues[0].total if queues else 0,
        "pagination": {"limit": limit, "offset": offset},
    }


@router.get("/status/analytics", responses=problem_responses(UnknownQueue))
async def analytics(
    request: Request,
    caller: ReadAccess,
    queue: Queue | None = None,
    start: Timestamp | None = START,
    end: Timestamp | None = END,
    interval: Interval | None = None,
) -> dict[str, object]:
    """Count the messages pushed to a queue, or to all queues, over time."""
    if queue is None:
        window = parse_window(start, end, interval, None)
        rows = QueueWindow(window.start, window.end, window.width)
        buckets = await read_environment_buckets(get_services(request), caller.environment, rows)
        pushed: dict[datetime, dict[str, object]] = {
            bucket.covered.bucket_at: {"messages": bucket.sums.push_messages} for bucket in buckets
        }
        return {
            "queue": None,
            **window.to_dict(),
            "dataPoints": [
                {"timestamp": point["timestamp"], "messages": point["messages"]}
                for point in window.points(pushed, {"messages": None})
            ],
        }
    series = await _read_series(request, caller, queue, start, end, interval)
    points = [
        {"timestamp": point["timestamp"], "messages": point["throughput"]["enqueued"]}
        for point in series["timeseries"]
    ]
    return {**_series_window_to_dict(series), "dataPoints": points}


@router.get("/status/queues/{queue}", responses=problem_responses(UnknownQueue))
async def get_queue(
    request: Request, caller: ReadAccess, queue: Queue, limit: Limit = 100, offset: Offset = 0
) -> dict[str, object]:
    """Describe one queue: options, totals, its groups, and a page of its partitions."""
    detail = await describe_queue(get_services(request), caller, queue, limit, offset)
    totals = detail["totals"]
    assert isinstance(totals, dict)
    names = ("id", "name", "namespace", "task", "createdAt")
    return {
        "queue": {**{name: detail[name] for name in names}, "config": detail["options"]},
        "totals": {"messages": totals, **totals},
        "consumerGroups": detail["consumerGroups"],
        "partitions": detail["partitions"],
        "partitionCount": detail["partitionCount"],
        "pagination": {"limit": limit, "offset": offset},
        "asOf": detail["asOf"],
    }


@router.get(
    "/status/queues/{queue}/messages",
    responses=problem_responses(UnknownQueue, UnknownGroup, UnknownPartition),
)
async def list_messages(
    request: Request,
    caller: ReadAccess,
    queue: Queue,
    partition: Partition | None = None,
    group: Group | None = Query(None, alias="consumerGroup"),
    status: MessageStatus | None = None,
    cursor: str | None = Query(None, max_length=60),
    limit: Limit = 50,
    offset: Offset = 0,
) -> Response:
    """List a queue's messages, newest first within each partition."""
    selection = MessageSelection(queue, partition, group, status, cursor, limit, offset)
    return json_response(await read_message_page(get_services(request), caller, selection))


@router.post("/stats/refresh")
async def refresh(caller: ReadAccess) -> dict[str, object]:
    """Do nothing: totals are counted as messages move, so they are always current."""
    return {"success": True, "refreshed": 0, "message": "totals are always current"}


async def _read_series(
    request: Request,
    caller: Caller,
    queue: str,
    start: datetime | None,
    end: datetime | None,
    interval: Interval | None,
) -> SeriesResponse:
    services = get_services(request)
    if not await services.broker.store.catalog.has_queue(caller.environment, queue):
        raise unknown_queue(queue)
    series = await asyncio.to_thread(
        lambda: services.warehouse.series().queue(
            caller.environment,
            queue,
            period=None if start else "1h",
            start=start,
            end=end,
            resolution=RESOLUTIONS[interval] if interval else None,
            fields=["throughput"],
        )
    )
    return series.to_response()


def _series_window_to_dict(series: SeriesResponse) -> dict[str, object]:
    period = series["period"]
    return {
        "queue": series["queue"],
        "timeRange": {"from": period["start"], "to": period["end"]},
        "interval": series["resolution"],
        "tier": series["tier"],
        "freshness": series["freshness"],
    }
