"""`GET /metrics`: what this broker process does, and what the pipeline says of itself, for Prometheus."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from fastapi import APIRouter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from redis import RedisError
from starlette.requests import Request
from starlette.responses import Response

from penstock import telemetry
from penstock.api.services import Services, services
from penstock.durable import dead_letters
from penstock.durable.horizon import Holder, horizon
from penstock.errors import PenstockError
from penstock.model import DEFAULT_SCOPE
from penstock.streams.progress import read_progress_async
from penstock.telemetry import Exported, Kind

router = APIRouter(tags=["metrics"])

DEADLINE_S = 2.0
MOST_GROUPS = 10_000
DEAD = (
    *(telemetry.DEAD_JOBS, telemetry.DEAD_MESSAGES, telemetry.DEAD_AGE),
    *(telemetry.DEAD_DRIFT, telemetry.DEAD_RECOUNT),
)

Samples = dict[tuple[str, ...], float]


class _Gathered:
    """Samples in the form the exposition asks for."""

    def __init__(self, samples: dict[Exported, Samples]) -> None:
        self._samples = samples

    def collect(self) -> Iterable[Metric]:
        for exported, values in self._samples.items():
            family_of = CounterMetricFamily if exported.kind is Kind.COUNTER else GaugeMetricFamily
            family = family_of(exported.name, exported.help, labels=exported.labels)
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family


@router.get("/metrics", response_class=Response)
async def prometheus(request: Request) -> Response:
    """Counters and gauges in the OpenMetrics format. With several workers, each answers for itself."""
    given = services(request)
    holders, progress, dead = await asyncio.gather(_holders(given), _progress(given), _dead_samples(given))
    samples = _samples(given, holders) | _overload_samples(given) | dead | _pipeline_samples(progress)
    body: bytes = generate_latest(_Gathered(samples))  # type: ignore[no-untyped-call]
    return Response(body, media_type=CONTENT_TYPE_LATEST)


async def _holders(given: Services) -> list[Holder]:
    try:
        limit = timedelta(seconds=given.settings.horizon_s)
        return await asyncio.wait_for(horizon(given.database, limit), DEADLINE_S)
    except (TimeoutError, PenstockError):
        return []  # the database is away or slow, which /health says


async def _dead_samples(given: Services) -> dict[Exported, Samples]:
    """Dead letters, from the counts that all processes share; no samples while the database is away."""
    try:
        rows, (drift, recounted_at) = await asyncio.wait_for(
            asyncio.gather(
                dead_letters.status(given.database, DEFAULT_SCOPE, limit=MOST_GROUPS, ages=True),
                dead_letters.drift(given.database),
            ),
            DEADLINE_S,
        )
    except (TimeoutError, PenstockError):
        return {exported: {} for exported in DEAD}
    now = time.time()
    counts: Samples = {(row["queue"], row["group_name"] or ""): 0 for row in rows}
    ages: Samples = {}
    for row in rows:  # groups that were deleted share a name
        key = (row["queue"], row["group_name"] or "")
        counts[key] += row["messages"]
        if row["oldest_at"] is not None:
            ages[key] = max(ages.get(key, 0.0), now - row["oldest_at"].timestamp())
    return {
        telemetry.DEAD_JOBS: counts,
        telemetry.DEAD_MESSAGES: counts,
        telemetry.DEAD_AGE: ages,
        telemetry.DEAD_DRIFT: {(): drift},
        telemetry.DEAD_RECOUNT: {(): now - recounted_at.timestamp()} if recounted_at else {},
    }


async def _progress(given: Services) -> dict[str, Any] | None:
    """The pipeline's last report; None if there is none, or Redis is away or slow."""
    try:
        return await asyncio.wait_for(read_progress_async(given.redis), DEADLINE_S)
    except (TimeoutError, RedisError, OSError, ValueError):
        return None


def _pipeline_samples(progress: dict[str, Any] | None) -> dict[Exported, Samples]:
    """What the pipeline said of itself. Without a report the metrics have no samples."""
    now = time.time()
    reports = {(name,): report for name, report in (progress or {}).get("metrics", {}).items()}

    def per_metric(field: str, scale: float = 1.0) -> Samples:
        return {metric: report[field] * scale for metric, report in reports.items()}

    return {
        telemetry.PIPELINE_AGE: {(): now - float(progress["at"])} if progress else {},
        telemetry.PIPELINE_FRESHNESS: {
            metric: max(0.0, now - report["freshness"])
            for metric, report in reports.items()
            if report["freshness"] is not None
        },
        telemetry.PIPELINE_LAG: {
            (stream,): lag
            for report in reports.values()
            for stream, lag in report["lag"].items()
            if lag is not None
        },
        telemetry.PIPELINE_INPUT: per_metric("input_rows_per_s"),
        telemetry.PIPELINE_PROCESSED: per_metric("processed_rows_per_s"),
        telemetry.PIPELINE_BATCH: per_metric("batch_ms", 1 / 1000),
        telemetry.PIPELINE_REJECTED: per_metric("rejected"),
        telemetry.PIPELINE_LOST: per_metric("lost"),
    }


def _overload_samples(given: Services) -> dict[Exported, Samples]:
    broker = given.broker
    load = broker.load.described()
    kinds = load["operations"]
    depth = broker.journal.depth() if broker.journal is not None else None
    return {
        telemetry.LOAD: {(kind,): known["load"] for kind, known in kinds.items()},
        telemetry.DECISIONS: {
            (kind, decision): count
            for kind, known in kinds.items()
            for decision, count in known["decisions"].items()
        },
        telemetry.WAITING: {
            (kind,): known["waiting"] for kind, known in kinds.items() if known["depthLimit"]
        },
        telemetry.DRAINED: {(): broker.drain.drained},
        telemetry.PARKED_OPERATIONS: {(): broker.drain.failed},
        telemetry.EVENT_LOOP: {(): broker.load.late_s.value},
        telemetry.JOURNAL_RECORDS: {(): depth.records} if depth else {},
        telemetry.JOURNAL_BYTES: {(): depth.bytes} if depth else {},
        telemetry.OUTAGE: {(): given.database.outage.since_s},
    }


def _samples(given: Services, holders: list[Holder]) -> dict[Exported, Samples]:
    broker = given.broker
    stats = {name: batcher.stats for name, batcher in broker.batchers.items()}
    stats["transaction"] = broker.settlements.transactions
    opened, busy = given.database.connections
    return {
        telemetry.REQUESTS: {(name,): s.requests for name, s in stats.items()},
        telemetry.ITEMS: {(name,): s.items for name, s in stats.items()},
        telemetry.BATCHES: {(name,): s.batches for name, s in stats.items()},
        telemetry.SECONDS: {(name,): s.busy_s for name, s in stats.items()},
        telemetry.FAILURES: {(name,): s.failures for name, s in stats.items()},
        telemetry.PENDING: {(name,): b.pending for name, b in broker.batchers.items()},
        telemetry.PARKED: {(): broker.waiters.parked},
        telemetry.CONNECTIONS: {("limit",): given.database.size, ("open",): opened, ("busy",): busy},
        telemetry.EMITTED: {(): given.emitter.emitted},
        telemetry.DROPPED: {(): given.emitter.dropped},
        telemetry.BUFFERED: {(): given.emitter.pending},
        telemetry.HORIZON: {(holder.kind, holder.name): holder.age_s for holder in holders},
    }
