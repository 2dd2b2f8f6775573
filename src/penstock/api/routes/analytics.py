"""What brokers did and how they were, from the minute rows they write. Nothing here looks at messages.

Rates are over the seconds that some broker covers, averages are sums over counts, percentiles come from
merged digests. A bucket that nobody covers is a gap: it has no numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request

from penstock.api.http.parameters import Group, Queue
from penstock.api.routes.queues import unknown_queue
from penstock.api.schemas.time_window import Asked, Window, ratio
from penstock.api.services import Services, get_services
from penstock.broker.self_metrics.lag import QUANTILES, Percentiles
from penstock.clock import iso
from penstock.errors import InvalidRequest
from penstock.model import DEFAULT_SCOPE

router = APIRouter(prefix="/api/v1/analytics", tags=["analytics"])

MOST_ROWS = 20_000
GAP = {"coveredSeconds": 0, "workers": 0}
QueueName = Annotated[Queue | None, Query(description="one queue; every queue for itself if left out")]
GroupName = Annotated[
    Group | None, Query(alias="consumerGroup", description="one consumer group; all together if left out")
]
COUNTS = {
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


@router.get("/throughput")
async def throughput(
    request: Request,
    asked: Asked,
) -> dict[str, Any]:
    """Requests and messages of all brokers together, and how long messages had waited when they were
    popped."""
    services = get_services(request)
    rows = await services.broker.store.worker_minutes.read_throughput(asked.start, asked.end, asked.width)
    percentiles = await _merged(
        services.broker.store.worker_minutes.lag_digests(asked.start, asked.end, asked.width),
        lambda row: row["bucket_at"],
    )
    found = {
        row.bucket_at: {
            "coveredSeconds": round(row.covered_s, 3),
            "workers": row.workers,
            **{name: row[column] for name, column in COUNTS.items()},
            "pushPerSecond": _rounded(row.push_per_s),
            "popPerSecond": _rounded(row.pop_per_s),
            "ackPerSecond": _rounded(row.ack_per_s),
            "transactionsPerSecond": _rounded(row.transactions_per_s),
            "avgLagMs": _rounded(row.avg_lag_ms),
            "maxLagMs": row.max_lag_ms,
            **_named(percentiles.of(row.bucket_at)),
        }
        for row in rows
    }
    unknown = dict.fromkeys((*COUNTS, "pushPerSecond", "popPerSecond", "ackPerSecond"))
    unknown |= dict.fromkeys(("transactionsPerSecond", "avgLagMs", "maxLagMs", *_named(percentiles.of(None))))
    return {**asked.described(), "series": asked.points(found, {**GAP, **unknown})}


@router.get("/queue-lag")
async def queue_lag(
    request: Request,
    asked: Asked,
    queue: QueueName = None,
    group: GroupName = None,
) -> dict[str, Any]:
    """How long messages had waited when they were popped, over time."""
    services = get_services(request)
    rows = await _queue_rows(services, asked, queue, group)
    percentiles = await _merged(
        services.broker.store.worker_minutes.queue_lag_digests(
            DEFAULT_SCOPE, asked.start, asked.end, asked.width, queue, group
        ),
        lambda row: (row["bucket_at"], row["queue"]),
    )

    def point(key: tuple[datetime, str], row: dict[str, int]) -> dict[str, Any]:
        return {
            "queueName": key[1],
            "popCount": row["lag_count"],
            "avgLagMs": ratio(row["lag_sum_ms"], row["lag_count"]),
            "maxLagMs": row["lag_max_ms"] if row["lag_count"] else None,
            **_named(percentiles.of(key)),
        }

    return {**_asked_of(asked, queue, group), "series": await _series(services, asked, queue, rows, point)}


@router.get("/queue-ops")
async def queue_ops(
    request: Request,
    asked: Asked,
    queue: QueueName = None,
    group: GroupName = None,
) -> dict[str, Any]:
    """What happened to messages, over time."""
    services = get_services(request)
    rows = await _queue_rows(services, asked, queue, group)

    def point(key: tuple[datetime, str], row: dict[str, int]) -> dict[str, Any]:
        return {
            "queueName": key[1],
            "pushMessages": row["push_messages"],
            "popMessages": row["pop_messages"],
            "ackSuccess": row["completed"],
            "ackFailed": row["failed"],
            "deadLetters": row["dead_letters"],
            "expired": row["expired"],
        }

    return {**_asked_of(asked, queue, group), "series": await _series(services, asked, queue, rows, point)}


Sums = dict[tuple[datetime, str], dict[str, int]]
SUMMED = (
    *("push_messages", "pop_messages", "completed", "failed", "dead_letters", "expired"),
    *("lag_count", "lag_sum_ms"),
)


async def _queue_rows(services: Services, asked: Window, queue: str | None, group: str | None) -> Sums:
    """What happened, by bucket and queue. Raises UnknownQueue for one that is not there and never was."""
    found = await services.broker.store.worker_minutes.read_queues(
        DEFAULT_SCOPE, asked.start, asked.end, asked.width, queue, group
    )
    if (
        queue is not None
        and not found
        and not await services.broker.store.catalog.has_queue(DEFAULT_SCOPE, queue)
    ):
        raise unknown_queue(queue)
    sums: Sums = {}
    for row in found:
        of = sums.setdefault((row.bucket_at, row.queue), dict.fromkeys((*SUMMED, "lag_max_ms"), 0))
        for name in SUMMED:
            of[name] += row[name]
        of["lag_max_ms"] = max(of["lag_max_ms"], row.lag_max_ms)
    if len(sums) > MOST_ROWS:
        raise InvalidRequest(
            f"that would be {len(sums):,} points, and {MOST_ROWS:,} are the most: "
            "name a queue, or ask for a shorter time or wider points"
        )
    return sums


async def _series(
    services: Services,
    asked: Window,
    queue: str | None,
    rows: Sums,
    point: Callable[[tuple[datetime, str], dict[str, int]], dict[str, Any]],
) -> list[dict[str, Any]]:
    """Of one queue a point per bucket: zeros where nothing happened, nothing where nobody looked. Of all
    queues those points in which something happened."""
    if queue is None:
        return [
            {"bucket": iso(key[0]), "timestamp": iso(key[0]), **point(key, row)} for key, row in rows.items()
        ]
    covered = await services.broker.store.worker_minutes.read_throughput(asked.start, asked.end, asked.width)
    nothing = dict.fromkeys((*SUMMED, "lag_max_ms"), 0)
    found = {}
    for row in covered:
        key = (row.bucket_at, queue)
        found[row.bucket_at] = {
            "coveredSeconds": round(row.covered_s, 3),
            **point(key, rows.get(key, nothing)),
        }
    shape = dict.fromkeys(point((asked.start, queue), nothing))
    return asked.points(found, {"coveredSeconds": 0, **shape, "queueName": queue})


async def _merged(pages: AsyncIterator[list[Any]], key_of: Callable[[Any], object]) -> Percentiles:
    percentiles = Percentiles()

    def add(rows: list[Any]) -> None:
        by_key: dict[object, list[bytes]] = {}
        for row in rows:
            by_key.setdefault(key_of(row), []).append(row["lag_digest"])
        for key, digests in by_key.items():
            percentiles.add(key, digests)

    async for rows in pages:
        await asyncio.to_thread(add, rows)
    return percentiles


def _asked_of(asked: Window, queue: str | None, group: str | None) -> dict[str, Any]:
    return {"queue": queue, "consumerGroup": group, **asked.described()}


def _named(percentiles: dict[str, float | None]) -> dict[str, float | None]:
    return {f"{name}LagMs": percentiles[name] for name in QUANTILES}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
