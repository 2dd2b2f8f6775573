"""Routes for series: the metrics of a queue, an environment or a broker process over time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Path, Query
from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import (
    PLATFORM_ADMIN_ONLY,
    PlatformReadAccess,
    ReadAccess,
    check_environment,
)
from penstock.api.http.parameters import Group, Label, Queue, Timestamp, refuse_unknown_parameters
from penstock.api.problems import problem_responses
from penstock.api.services import Services, get_services
from penstock.caller import Caller
from penstock.definitions import QUEUE, WORKER, MetricDefinition
from penstock.errors import (
    RedisUnavailable,
    UnknownEnvironment,
    UnknownGroup,
    UnknownQueue,
    WarehouseUnavailable,
)
from penstock.streams.watermark import read_watermark
from penstock.warehouse.series.series_fields import FIELDS, SeriesFormat
from penstock.warehouse.series.window import SeriesRequest

if TYPE_CHECKING:
    from penstock.warehouse.series.series_response import Series

router = APIRouter(prefix="/api/v1", tags=["metrics"], dependencies=[Depends(refuse_unknown_parameters)])
logger = logging.getLogger(__name__)

REDIS_TIMEOUT_S = 1.0
"""After this time a series is returned without its completeness."""

Period = Annotated[
    str | None, Query(description="length of the window until now: 30m (default), 2h, 24h, 7d, 30d")
]
Start = Annotated[
    Timestamp | None, Query(alias="from", description="start of the window, instead of a period")
]
End = Annotated[Timestamp | None, Query(alias="to", description="end of the window; default: now")]
Resolution = Annotated[
    str | None, Query(description="width of a point: 5s, 1m, 1h or a multiple; default: by the period")
]
Fields = Annotated[str | None, Query(description=f"fields of a point; default: all of {','.join(FIELDS)}")]
Format = Annotated[
    SeriesFormat,
    Query(
        alias="format",
        description="points: a list `timeseries` with an object per point; "
        "columns: an object `columns` with a list per field, a third of the size",
    ),
]


@router.get(
    "/queues/{queue}/metrics", responses=problem_responses(UnknownQueue, UnknownGroup, WarehouseUnavailable)
)
async def queue_metrics(
    request: Request,
    caller: ReadAccess,
    queue: Queue,
    period: Period = None,
    start: Start = None,
    end: End = None,
    resolution: Resolution = None,
    group: Annotated[
        Group | None, Query(description="one consumer group; default: the queue as a whole")
    ] = None,
    fields: Fields = None,
    form: Format = SeriesFormat.POINTS,
) -> Response:
    """Return throughput, depth, latency, run time, concurrency and failures of a durable or run queue over
    time.

    The series of a run queue also has its delayed tasks, which are not part of its depth. A deleted queue
    keeps the series of the time in which it existed.
    """
    services = get_services(request)
    series_request = await _build_request(services, period, start, end, resolution, fields)
    if not await _queue_exists(services, caller, queue):
        raise UnknownQueue.of_any_kind(queue)
    if group is not None and not await _group_exists(services, caller, queue, group):
        raise UnknownGroup(
            f"Queue {queue!r} has no consumer group {group!r}. The first pop of a group creates it.",
            queue=queue,
            group=group,
        )
    return await _encode_in_thread(
        lambda: services.warehouse.series().queue(caller.environment, queue, group, **series_request), form
    )


@router.get(
    "/environments/{environment}/queue-metrics",
    responses=problem_responses(UnknownEnvironment, WarehouseUnavailable),
)
async def environment_metrics(
    request: Request,
    caller: ReadAccess,
    environment: Label,
    period: Period = None,
    start: Start = None,
    end: End = None,
    resolution: Resolution = None,
    fields: Fields = None,
    form: Format = SeriesFormat.POINTS,
) -> Response:
    """Return the same over all queues of an environment: sums, and the depth and age of the whole."""
    services = get_services(request)
    check_environment(caller, environment)
    series_request = await _build_request(services, period, start, end, resolution, fields)
    return await _encode_in_thread(
        lambda: services.warehouse.series().environment(caller.environment, **series_request), form
    )


@router.get(
    "/workers/{hostname}/{worker}/metrics",
    responses=problem_responses(WarehouseUnavailable),
    openapi_extra=PLATFORM_ADMIN_ONLY,
)
async def worker_metrics(
    request: Request,
    caller: PlatformReadAccess,
    hostname: Label,
    worker: Annotated[int, Path(ge=0, le=10_000, description="worker slot among the brokers behind a port")],
    period: Period = None,
    start: Start = None,
    end: End = None,
    resolution: Resolution = None,
    form: Format = SeriesFormat.POINTS,
) -> Response:
    """Return what a broker process did and how loaded it was; zeros for the time in which it did not run."""
    services = get_services(request)
    series_request = await _build_request(services, period, start, end, resolution, None, WORKER)
    labels = {"hostname": hostname, "worker": str(worker)}
    return await _encode_in_thread(lambda: services.warehouse.series().worker(labels, **series_request), form)


async def _queue_exists(services: Services, caller: Caller, queue: str) -> bool:
    """Return whether a durable or run queue has the name, or had it while it was measured."""
    if await _run_queue_exists(services, caller, queue):
        return True
    if await services.broker.store.catalog.has_queue(caller.environment, queue):
        return True
    return await _exists_in_warehouse(
        lambda: services.warehouse.series().knows_queue(caller.environment, queue)
    )


async def _group_exists(services: Services, caller: Caller, queue: str, group: str) -> bool:
    """Return whether the queue has the consumer group, or had it while it was measured."""
    if await services.broker.store.consumer_groups.find_subscriptions(caller.environment, group, queue):
        return True
    return await _exists_in_warehouse(
        lambda: services.warehouse.series().knows_queue(caller.environment, queue, group)
    )


async def _run_queue_exists(services: Services, caller: Caller, queue: str) -> bool:
    try:
        async with asyncio.timeout(REDIS_TIMEOUT_S):
            return await services.run_queues.has_queue(caller.environment, queue)
    except (RedisUnavailable, TimeoutError):
        return False  # ClickHouse also knows a run queue that was measured


async def _build_request(
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
        # Read before ClickHouse, so that a series never claims to be more complete than it is.
        counted_until_s=await _read_watermark(services, definition),
    )


async def _read_watermark(services: Services, definition: MetricDefinition) -> float | None:
    try:
        async with asyncio.timeout(REDIS_TIMEOUT_S):
            return await read_watermark(services.redis, definition)
    except (RedisError, OSError, TimeoutError) as error:
        logger.warning("the watermark of counted events is unknown: Redis: %s", error)
        return None


async def _exists_in_warehouse(is_known: Callable[[], bool]) -> bool:
    """Return whether ClickHouse has measurements; False if it is unreachable."""
    try:
        return await asyncio.to_thread(is_known)
    except WarehouseUnavailable:
        return False


async def _encode_in_thread(read_series: Callable[[], Series], form: SeriesFormat) -> Response:
    """Read and encode a series in a thread: it may have ten thousand points."""
    body = await asyncio.to_thread(lambda: read_series().to_json(form))
    return Response(body, media_type="application/json")
