"""Series: what happened to a queue over time."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Query
from starlette.requests import Request

from penstock.api.services import services
from penstock.durable import catalog
from penstock.errors import UnknownQueue
from penstock.model import DEFAULT_SCOPE
from penstock.warehouse.series import queue_series

router = APIRouter(prefix="/api/v1", tags=["metrics"])


@router.get("/queues/{queue}/metrics")
async def queue_metrics(
    request: Request,
    queue: str,
    period: str | None = Query(None, description="how far back from now: 30m, 2h, 24h, 7d, 30d"),
    start: datetime | None = Query(None, alias="from", description="instead of a period: the window's start"),
    end: datetime | None = Query(None, alias="to", description="the window's end; now if left out"),
    resolution: str | None = Query(None, description="5s, 1m or 1h; chosen by the period if left out"),
    group: str | None = Query(None, description="one consumer group; the queue as a whole if left out"),
) -> dict[str, Any]:
    """Throughput, depth, latency, concurrency and failures of a queue over time."""
    given = services(request)
    if not await catalog.queue_exists(given.database, DEFAULT_SCOPE, queue):
        raise UnknownQueue(f"there is no queue {queue!r}; it is made by the first push to it", queue=queue)
    return await asyncio.to_thread(
        queue_series,
        given.warehouse,
        DEFAULT_SCOPE,
        queue,
        group=group,
        period=period or ("30m" if start is None else None),
        start=start,
        end=end,
        resolution=resolution,
    )
