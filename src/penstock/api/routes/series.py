"""Series: what happened to a queue, or in a whole environment, over time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query
from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.http.parameters import Group, Label, Queue
from penstock.api.services import Services, get_services
from penstock.definitions import QUEUE, WORKER, MetricDefinition
from penstock.errors import RedisUnavailable, UnknownEnvironment, UnknownQueue, WarehouseUnavailable
from penstock.model import DEFAULT_SCOPE
from penstock.streams.watermark import counted_until
from penstock.warehouse.series.entries import FIELDS
from penstock.warehouse.series.metric_series import metric_series
from penstock.warehouse.series.queue_series import (
    SeriesResponse,
    environment_is_known,
    environment_series,
    queue_is_known,
    queue_series,
)
from penstock.warehouse.series.window import SeriesRequest

router = APIRouter(prefix="/api/v1", tags=["metrics"])
logger = logging.getLogger(__name__)

REDIS_PATIENCE_S = 1.0
"""A series is worth having without knowing how complete it is."""

Period = Annotated[
    str | None, Query(description="how far back from now: 30m (if left out), 2h, 24h, 7d, 30d")
]
Start = Annotated[datetime | None, Query(alias="from", description="instead of a period: the window's start")]
End = Annotated[datetime | None, Query(alias="to", description="the window's end; now if left out")]
Resolution = Annotated[
    str | None, Query(description="width of a point: 5s, 1m, 1h or a multiple; by the period if left out")
]
Fields = Annotated[str | None, Query(description=f"parts of a point, all if left out: {','.join(FIELDS)}")]


@router.get("/queues/{queue}/metrics")
async def queue_metrics(
    request: Request,
    queue: Queue,
    period: Period = None,
    start: Start = None,
    end: End = None,
    resolution: Resolution = None,
    group: Annotated[
        Group | None, Query(description="one consumer group; the queue as a whole if left out")
    ] = None,
    fields: Fields = None,
) -> Response:
    """Throughput, depth, latency, run time, concurrency and failures of a queue over time, of a run queue as
    of a durable one; of a run queue also its delayed tasks, which are not in its depth.

    A queue that was deleted still has the series of the time it was there.
    """
    services = get_services(request)
    asked = await _asked(services, period, start, end, resolution, fields)
    if not await _is_known(services, queue):
        raise UnknownQueue(
            f"there is no queue {queue!r}; it is made by the first push or task for it", queue=queue
        )
    return await _answer(
        lambda: queue_series(services.series_reader, DEFAULT_SCOPE, queue, group=group, **asked)
    )


@router.get("/environments/{environment}/queue-metrics")
async def environment_metrics(
    request: Request,
    environment: Label,
    period: Period = None,
    start: Start = None,
    end: End = None,
    resolution: Resolution = None,
    fields: Fields = None,
) -> Response:
    """The same of all queues of an environment together: sums, and depth and age of the whole."""
    services = get_services(request)
    scope = DEFAULT_SCOPE._replace(environment=environment)
    asked = await _asked(services, period, start, end, resolution, fields)
    if not await services.broker.store.catalog.has_queues(scope) and not await _measured(
        lambda: environment_is_known(services.warehouse, scope)
    ):
        raise UnknownEnvironment(
            f"there is no environment {environment!r}; it is made by the first push to a queue in it",
            environment=environment,
        )
    return await _answer(lambda: environment_series(services.series_reader, scope, **asked))


@router.get("/workers/{hostname}/{worker}/metrics")
async def worker_metrics(
    request: Request,
    hostname: Label,
    worker: Annotated[int, Path(ge=0, le=10_000, description="its number among the brokers of a port")],
    period: Period = None,
    start: Start = None,
    end: End = None,
    resolution: Resolution = None,
) -> Response:
    """What a broker process did and how it was, at any zoom; nothing but zeros where it was not there."""
    services = get_services(request)
    asked = await _asked(services, period, start, end, resolution, None, WORKER)
    named = {"hostname": hostname, "worker": str(worker)}
    return await _answer(lambda: metric_series(services.series_reader, WORKER, named, **asked))


async def _is_known(services: Services, queue: str) -> bool:
    """Whether a queue of either kind has the name, or had it while it was measured."""
    if await _has_tasks(services, queue):
        return True
    if await services.broker.store.catalog.has_queue(DEFAULT_SCOPE, queue):
        return True
    return await _measured(lambda: queue_is_known(services.warehouse, DEFAULT_SCOPE, queue))


async def _has_tasks(services: Services, queue: str) -> bool:
    try:
        async with asyncio.timeout(REDIS_PATIENCE_S):
            return await services.run_queues.has_queue(DEFAULT_SCOPE, queue)
    except (RedisUnavailable, TimeoutError):
        return False  # a run queue that was measured is known to ClickHouse all the same


async def _asked(
    services: Services,
    period: str | None,
    start: datetime | None,
    end: datetime | None,
    resolution: str | None,
    fields: str | None,
    definition: MetricDefinition = QUEUE,
) -> SeriesRequest:
    return SeriesRequest(
        period=period or ("30m" if start is None else None),
        start=start,
        end=end,
        resolution=resolution,
        fields=None if fields is None else [name.strip() for name in fields.split(",") if name.strip()],
        # Asked for before ClickHouse is, so that it never promises too much.
        counted_until_s=await _counted_until(services, definition),
    )


async def _counted_until(services: Services, definition: MetricDefinition) -> float | None:
    try:
        async with asyncio.timeout(REDIS_PATIENCE_S):
            return await counted_until(services.redis, definition)
    except (RedisError, OSError, TimeoutError) as error:
        logger.warning("how far events were counted is not known: Redis: %s", error)
        return None


async def _measured(known: Callable[[], bool]) -> bool:
    """Whether ClickHouse knows what PostgreSQL does not; if it is away, nobody does."""
    try:
        return await asyncio.to_thread(known)
    except WarehouseUnavailable:
        return False


async def _answer(series: Callable[[], SeriesResponse]) -> Response:
    """The series as JSON, made in a thread: it may have ten thousand points."""
    body = await asyncio.to_thread(lambda: msgspec.json.encode(series()))
    return Response(body, media_type="application/json")
