"""How queues are doing now, and what their series tell of the past."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.http.parameters import Group, Limit, Offset, Partition, Queue, Text, Timestamp
from penstock.api.http.response import json_response
from penstock.api.routes.message_admin import Status, message_page
from penstock.api.routes.queues import message_totals, queue_detail, totals, unknown_queue
from penstock.api.schemas.time_window import window
from penstock.api.services import get_services
from penstock.clock import iso
from penstock.model import DEFAULT_SCOPE
from penstock.warehouse.series.queue_series import SeriesResponse, queue_series

router = APIRouter(prefix="/api/v1", tags=["status"])

RESOLUTIONS = {"minute": "1m", "hour": "1h"}
Interval = Literal["minute", "hour"]
START = Query(None, alias="from", description="the window's start; an hour ago if left out")
END = Query(None, alias="to", description="the window's end; now if left out")


@router.get("/status")
async def status(request: Request, namespace: Text = None, task: Text = None) -> dict[str, Any]:
    """Totals over all queues, current to the moment."""
    return await totals(get_services(request), namespace, task)


@router.get("/status/reconciliation")
async def last_reconciliation(request: Request) -> dict[str, Any]:
    """When totals and positions were last compared with the log, and what was found. `drift` is the number of
    messages by which totals were wrong, and `orphans` that of rows without an owner; all were corrected."""
    row = await get_services(request).broker.store.reconciliation.latest()
    if row is None:
        return {"endedAt": None}
    return {
        "beganAt": iso(row.began_at),
        "endedAt": iso(row.ended_at),
        **{name: row[name] for name in ("queues", "partitions", "positions", "drift", "orphans")},
        "findings": json.loads(row.findings),
    }


@router.get("/status/queues")
async def list_queues(
    request: Request,
    namespace: Text = None,
    task: Text = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> dict[str, Any]:
    """A page of queues by name with their totals."""
    rows = await get_services(request).broker.store.catalog.list_holdings(
        DEFAULT_SCOPE,
        namespace=namespace or None,
        task=task or None,
        limit=limit,
        offset=offset,
    )
    return {
        "queues": [
            {
                "id": str(row.id),
                "name": row.name,
                "namespace": row.namespace,
                "task": row.task,
                "createdAt": iso(row.created_at),
                "partitions": row.partitions,
                "consumerGroups": row.groups,
                "messages": message_totals(row),
            }
            for row in rows
        ],
        "total": rows[0].total if rows else 0,
        "pagination": {"limit": limit, "offset": offset},
    }


@router.get("/status/analytics")
async def analytics(
    request: Request,
    queue: Queue | None = None,
    start: Timestamp | None = START,
    end: Timestamp | None = END,
    interval: Interval | None = None,
) -> dict[str, Any]:
    """How many messages were pushed to a queue, or to all of them, over time."""
    if queue is None:
        asked = window(start, end, interval, None)
        rows = await get_services(request).broker.store.worker_minutes.read_throughput(
            asked.start, asked.end, asked.width
        )
        found = {row.bucket_at: {"messages": row.push_messages} for row in rows}
        return {
            "queue": None,
            **asked.described(),
            "dataPoints": [
                {"timestamp": point["timestamp"], "messages": point["messages"]}
                for point in asked.points(found, {"messages": None})
            ],
        }
    series = await _series(request, queue, start, end, interval)
    points = [
        {"timestamp": point["timestamp"], "messages": point["throughput"]["enqueued"]}
        for point in series["timeseries"]
    ]
    return {**_window(series), "dataPoints": points}


@router.get("/status/queues/{queue}")
async def get_queue(request: Request, queue: Queue, limit: Limit = 100, offset: Offset = 0) -> dict[str, Any]:
    """One queue: options, totals, its groups, and a page of its partitions."""
    detail = await queue_detail(get_services(request), queue, limit, offset)
    names = ("id", "name", "namespace", "task", "createdAt")
    return {
        "queue": {**{name: detail[name] for name in names}, "config": detail["options"]},
        "totals": {"messages": detail["totals"], **detail["totals"]},
        "consumerGroups": detail["consumerGroups"],
        "partitions": detail["partitions"],
        "partitionCount": detail["partitionCount"],
        "pagination": {"limit": limit, "offset": offset},
        "asOf": detail["asOf"],
    }


@router.get("/status/queues/{queue}/messages")
async def list_messages(
    request: Request,
    queue: Queue,
    partition: Partition | None = None,
    group: Group | None = Query(None, alias="consumerGroup"),
    status: Status | None = None,
    cursor: str | None = Query(None, max_length=60),
    limit: Limit = 50,
    offset: Offset = 0,
) -> Response:
    """A page of a queue's messages: newest first within each partition."""
    listing = await message_page(
        get_services(request), queue, partition, group, status, cursor, limit, offset
    )
    return json_response(listing)


@router.post("/stats/refresh")
async def refresh() -> dict[str, Any]:
    """Totals are counted as messages move, so they are current: there is nothing to refresh."""
    return {"success": True, "refreshed": 0, "message": "totals are always current"}


async def _series(request: Request, queue: str, start: Any, end: Any, interval: str | None) -> SeriesResponse:
    services = get_services(request)
    if not await services.broker.store.catalog.has_queue(DEFAULT_SCOPE, queue):
        raise unknown_queue(queue)
    return await asyncio.to_thread(
        queue_series,
        services.series_reader,
        DEFAULT_SCOPE,
        queue,
        period=None if start else "1h",
        start=start,
        end=end,
        resolution=RESOLUTIONS[interval] if interval else None,
    )


def _window(series: SeriesResponse) -> dict[str, Any]:
    window = series["period"]
    return {
        "queue": series["queue"],
        "timeRange": {"from": window["start"], "to": window["end"]},
        "interval": series["resolution"],
        "tier": series["tier"],
        "freshness": series["freshness"],
    }
