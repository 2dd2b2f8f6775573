"""`GET /metrics`: what this broker process does, for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta

from fastapi import APIRouter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from penstock import telemetry
from penstock.api.services import Services, services
from penstock.durable.horizon import Holder, horizon
from penstock.errors import PenstockError
from penstock.telemetry import Exported, Kind

router = APIRouter(tags=["metrics"])

DEADLINE_S = 2.0

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
    try:
        limit = timedelta(seconds=given.settings.horizon_s)
        holders = await asyncio.wait_for(horizon(given.database, limit), DEADLINE_S)
    except (TimeoutError, PenstockError):
        holders = []  # the database is away or slow, which /health says
    body: bytes = generate_latest(_Gathered(_samples(given, holders)))  # type: ignore[no-untyped-call]
    return Response(body, media_type=CONTENT_TYPE_LATEST)


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
