"""Routes for the throughput and lag that broker processes record every minute.

Rates are over the seconds that at least one broker covers, averages are sums over counts, and percentiles
come from merged digests. A bucket that no broker covers is a gap: it has no numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request

from penstock.api.access import ReadAccess
from penstock.api.http.parameters import Group, Queue
from penstock.api.minute_sums import EnvironmentBucket, QueueSums, read_environment_buckets
from penstock.api.problems import problem_responses
from penstock.api.routes.queues import unknown_queue
from penstock.api.schemas.time_window import TimeWindow, WindowParameter, ratio
from penstock.api.services import Services, get_services
from penstock.broker.durable_store import (
    LagDigest,
    QueueLagDigest,
    QueueWindow,
    ThroughputBucket,
)
from penstock.broker.self_metrics.lag import QUANTILES, LagPercentiles
from penstock.caller import Caller
from penstock.clock import iso
from penstock.errors import InvalidRequest, UnknownQueue

router = APIRouter(prefix="/api/v1/analytics", tags=["analytics"])

MAX_POINTS_OF_ALL_QUEUES = 20_000
COUNTERS = {
    "pushRequests": "push_requests",
    "pushMessages": "push_messages",
    "popRequests": "pop_requests",
    "popMessages": "pop_messages",
    "ackRequests": "ack_requests",
    "ackMessages": "ack_messages",
    "transactionRequests": "transaction_requests",
    "transactionMessages": "transaction_messages",
    "databaseErrors": "database_errors",
    "deadLetters": "dead_letters",
}
"""JSON fields and the columns they show."""

RATES = ("pushPerSecond", "popPerSecond", "ackPerSecond", "transactionsPerSecond")

QueueName = Annotated[Queue | None, Query(description="one queue; default: every queue on its own")]
GroupName = Annotated[
    Group | None, Query(alias="consumerGroup", description="one consumer group; default: all together")
]
DigestT = TypeVar("DigestT", LagDigest, QueueLagDigest)


@dataclass(frozen=True, slots=True)
class QueueSelection:
    """The window of a request for minute rows of queues, and one queue or group unless None."""

    window: TimeWindow
    queue: str | None
    group: str | None

    @property
    def rows(self) -> QueueWindow:
        return QueueWindow(self.window.start, self.window.end, self.window.width, self.queue, self.group)


def parse_queue_page(
    window: WindowParameter, queue: QueueName = None, group: GroupName = None
) -> QueueSelection:
    return QueueSelection(window, queue, group)


QueuePageParameter = Annotated[QueueSelection, Depends(parse_queue_page)]


BucketKey = tuple[datetime, str]
"""The start of a bucket and the name of a queue."""
PointBuilder = Callable[[BucketKey, QueueSums], dict[str, object]]


@router.get("/throughput")
async def throughput(request: Request, caller: ReadAccess, window: WindowParameter) -> dict[str, object]:
    """Count messages, and how long they waited before a pop.

    For platform administrators it counts requests and messages of all brokers together. For others it counts
    the messages of their environment; requests are not counted by environment and null.
    """
    services = get_services(request)
    minutes = services.broker.store.worker_minutes
    if caller.is_platform_admin:
        digests = minutes.lag_digests(window.start, window.end, window.width)
        percentiles = await _merge_digests(digests, lambda digest: digest.bucket_at)
        buckets = await minutes.read_throughput(window.start, window.end, window.width)
        points = {bucket.bucket_at: _throughput_to_dict(bucket, percentiles) for bucket in buckets}
    else:
        rows = QueueWindow(window.start, window.end, window.width)
        queue_digests = minutes.queue_lag_digests(caller.environment, rows)
        percentiles = await _merge_digests(queue_digests, lambda digest: digest.bucket_at)
        points = {
            bucket.covered.bucket_at: _environment_throughput_to_dict(bucket, percentiles)
            for bucket in await read_environment_buckets(services, caller.environment, rows)
        }
    gap = {
        "coveredSeconds": 0,
        "workers": 0,
        **dict.fromkeys((*COUNTERS, *RATES, "avgLagMs", "maxLagMs", *_lag_percentiles(percentiles, None))),
    }
    return {**window.to_dict(), "series": window.points(points, gap)}


@router.get("/queue-lag", responses=problem_responses(UnknownQueue))
async def queue_lag(request: Request, caller: ReadAccess, selection: QueuePageParameter) -> dict[str, object]:
    """Measure how long messages waited before a pop, over time."""
    services = get_services(request)
    sums = await read_queue_sums(services, caller, selection)
    percentiles = await _merge_digests(
        services.broker.store.worker_minutes.queue_lag_digests(caller.environment, selection.rows),
        lambda digest: (digest.bucket_at, digest.queue),
    )

    def build_point(key: BucketKey, bucket: QueueSums) -> dict[str, object]:
        return {
            "queueName": key[1],
            "popCount": bucket.lag_count,
            "avgLagMs": ratio(bucket.lag_sum_ms, bucket.lag_count),
            "maxLagMs": bucket.lag_max_ms if bucket.lag_count else None,
            **_lag_percentiles(percentiles, key),
        }

    return await _queue_response(services, selection, sums, build_point)


@router.get("/queue-ops", responses=problem_responses(UnknownQueue))
async def queue_ops(request: Request, caller: ReadAccess, selection: QueuePageParameter) -> dict[str, object]:
    """Count what happened to messages, over time."""
    services = get_services(request)
    sums = await read_queue_sums(services, caller, selection)

    def build_point(key: BucketKey, bucket: QueueSums) -> dict[str, object]:
        return {
            "queueName": key[1],
            "pushMessages": bucket.push_messages,
            "popMessages": bucket.pop_messages,
            "ackSuccess": bucket.completed,
            "ackFailed": bucket.failed,
            "ackReleased": bucket.released,
            "deadLetters": bucket.dead_letters,
            "expired": bucket.expired,
        }

    return await _queue_response(services, selection, sums, build_point)


async def read_queue_sums(
    services: Services, caller: Caller, selection: QueueSelection
) -> dict[BucketKey, QueueSums]:
    """Sum minute rows by bucket and queue. Raises UnknownQueue for a queue that never existed."""
    store, queue = services.broker.store, selection.queue
    buckets = await store.worker_minutes.read_queues(caller.environment, selection.rows)
    if queue is not None and not buckets and not await store.catalog.has_queue(caller.environment, queue):
        raise unknown_queue(queue)
    sums: dict[BucketKey, QueueSums] = {}
    for bucket in buckets:
        sums.setdefault((bucket.bucket_at, bucket.queue), QueueSums()).add(bucket)
    if len(sums) > MAX_POINTS_OF_ALL_QUEUES:
        raise InvalidRequest(
            f"The response would have {len(sums):,} points, but at most {MAX_POINTS_OF_ALL_QUEUES:,} are "
            "allowed. Name a queue, or ask for a shorter time or wider points."
        )
    return sums


async def _queue_response(
    services: Services,
    selection: QueueSelection,
    sums: dict[BucketKey, QueueSums],
    build_point: PointBuilder,
) -> dict[str, object]:
    """Return the series of one queue or of all.

    One queue has a point per bucket: zeros where nothing happened, a gap where no broker covers it. All
    queues have the points in which something happened.
    """
    window, queue = selection.window, selection.queue
    series: list[dict[str, object]] = [
        {"bucket": iso(key[0]), "timestamp": iso(key[0]), **build_point(key, bucket)}
        for key, bucket in sums.items()
    ]
    if queue is not None:
        covered = await services.broker.store.worker_minutes.read_throughput(
            window.start, window.end, window.width
        )
        points = {
            bucket.bucket_at: {
                "coveredSeconds": round(bucket.covered_s, 3),
                **build_point((bucket.bucket_at, queue), sums.get((bucket.bucket_at, queue), QueueSums())),
            }
            for bucket in covered
        }
        empty = dict.fromkeys(build_point((window.start, queue), QueueSums()))
        series = window.points(points, {"coveredSeconds": 0, **empty, "queueName": queue})
    return {"queue": queue, "consumerGroup": selection.group, **window.to_dict(), "series": series}


async def _merge_digests(
    pages: AsyncIterator[list[DigestT]], key_of: Callable[[DigestT], object]
) -> LagPercentiles:
    """Merge digests by key. The event loop stays free: each page is merged in a thread."""
    percentiles = LagPercentiles()

    def add_page(page: list[DigestT]) -> None:
        by_key: dict[object, list[bytes]] = {}
        for digest in page:
            by_key.setdefault(key_of(digest), []).append(digest.lag_digest)
        for key, digests in by_key.items():
            percentiles.add(key, digests)

    async for page in pages:
        await asyncio.to_thread(add_page, page)
    return percentiles


def _throughput_to_dict(bucket: ThroughputBucket, percentiles: LagPercentiles) -> dict[str, object]:
    return {
        "coveredSeconds": round(bucket.covered_s, 3),
        "workers": bucket.workers,
        **{name: getattr(bucket, column) for name, column in COUNTERS.items()},
        "pushPerSecond": _round_rate(bucket.push_per_s),
        "popPerSecond": _round_rate(bucket.pop_per_s),
        "ackPerSecond": _round_rate(bucket.ack_per_s),
        "transactionsPerSecond": _round_rate(bucket.transactions_per_s),
        "avgLagMs": _round_rate(bucket.avg_lag_ms),
        "maxLagMs": bucket.max_lag_ms,
        **_lag_percentiles(percentiles, bucket.bucket_at),
    }


def _environment_throughput_to_dict(
    bucket: EnvironmentBucket, percentiles: LagPercentiles
) -> dict[str, object]:
    sums, covered_s = bucket.sums, bucket.covered.covered_s
    return {
        "coveredSeconds": round(covered_s, 3),
        "workers": bucket.covered.workers,
        **dict.fromkeys((*COUNTERS, *RATES)),
        "pushMessages": sums.push_messages,
        "popMessages": sums.pop_messages,
        "ackMessages": sums.acked,
        "deadLetters": sums.dead_letters,
        "pushPerSecond": ratio(sums.push_messages, covered_s),
        "popPerSecond": ratio(sums.pop_messages, covered_s),
        "ackPerSecond": ratio(sums.acked, covered_s),
        "avgLagMs": ratio(sums.lag_sum_ms, sums.lag_count),
        "maxLagMs": sums.lag_max_ms if sums.lag_count else None,
        **_lag_percentiles(percentiles, bucket.covered.bucket_at),
    }


def _lag_percentiles(percentiles: LagPercentiles, key: object) -> dict[str, float | None]:
    values = percentiles.get(key)
    return {f"{name}LagMs": values[name] for name in QUANTILES}


def _round_rate(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
