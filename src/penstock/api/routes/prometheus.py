"""`GET /metrics`: what the brokers behind this port do, and what the pipeline tells, for Prometheus."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from fastapi import APIRouter
from prometheus_client import exposition as plain
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from redis import RedisError
from starlette.requests import Request
from starlette.responses import Response

from penstock import telemetry
from penstock.api.exporter.process_samples import Samples, SampleTable
from penstock.api.exporter.queue_samples import queue_samples
from penstock.api.exporter.worker_aggregate import summary_values
from penstock.api.schemas.dead_letter_views import status_page
from penstock.api.services import Services, get_services
from penstock.durable import reconciliation
from penstock.durable.dead_letters import dead_letter_queries
from penstock.durable.storage.vacuum_horizon import Holder, horizon
from penstock.errors import PenstockError
from penstock.streams.progress import read_progress_async
from penstock.telemetry import EXPORTED_METRICS, MetricType

router = APIRouter(tags=["metrics"])

DEADLINE_S = 2.0
MOST_GROUPS = 10_000
DEAD = (
    *(telemetry.DEAD_JOB_COUNT, telemetry.DEAD_LETTERS, telemetry.DEAD_LETTER_OLDEST_AGE),
    *(telemetry.DEAD_LETTER_DRIFT, telemetry.DEAD_LETTER_RECOUNT_AGE),
)


class _Gathered:
    """Samples in the form the exposition asks for."""

    def __init__(self, samples: SampleTable) -> None:
        self._samples = samples

    def collect(self) -> Iterable[Metric]:
        for exported in EXPORTED_METRICS:
            values = self._samples[exported]
            if exported.type is MetricType.SUMMARY:
                summary = SummaryMetricFamily(exported.name, exported.help, labels=exported.all_labels)
                for labels, found in summary_values(values, exported).items():
                    summary.add_metric(labels, int(found["count"]), found["sum"])
                yield summary
                continue
            family_of = CounterMetricFamily if exported.type is MetricType.COUNTER else GaugeMetricFamily
            family = family_of(exported.name, exported.help, labels=exported.all_labels)
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family


DESCRIPTION = "\n".join(
    [
        "Counters and gauges in the OpenMetrics format, or in the older one for those who accept only that.",
        "Any worker answers for all behind its port.",
        "",
        "| Metric | Type | Labels | What it is |",
        "|---|---|---|---|",
        *(
            f"| `{e.name}` | {e.type} | {', '.join(e.all_labels) or '–'} | {e.help} |"
            for e in EXPORTED_METRICS
        ),
    ]
)


@router.get("/metrics", response_class=Response, description=DESCRIPTION)
async def prometheus(request: Request) -> Response:
    services = get_services(request)
    queues, holders, progress, dead, reconciled = await asyncio.gather(
        queue_samples(services),
        _holders(services),
        _progress(services),
        _dead_samples(services),
        _reconciled(services),
    )
    depth = services.broker.journal.depth() if services.broker.journal is not None else None
    samples = queues | dead | reconciled | _pipeline_samples(progress)
    samples |= {
        telemetry.VACUUM_HORIZON_AGE: {(holder.kind, holder.name): holder.age_s for holder in holders},
        telemetry.JOURNAL_RECORDS: {(): depth.records} if depth else {},
        telemetry.JOURNAL_BYTES: {(): depth.bytes} if depth else {},
    }
    samples |= services.worker_aggregate.samples()
    gathered = _Gathered(samples)
    accepted = request.headers.get("accept", "")
    if "text/plain" in accepted and "openmetrics" not in accepted:
        return Response(plain.generate_latest(gathered), media_type=plain.CONTENT_TYPE_LATEST)
    body: bytes = generate_latest(gathered)  # type: ignore[no-untyped-call]
    return Response(body, media_type=CONTENT_TYPE_LATEST)


async def _reconciled(services: Services) -> SampleTable:
    """What the last comparison with the log found; no samples before the first, or without the database."""
    table: SampleTable = {
        telemetry.RECONCILIATION_AGE: {},
        telemetry.RECONCILIATION_DRIFT: {},
        telemetry.RECONCILIATION_FINDINGS: {},
    }
    try:
        row = await asyncio.wait_for(reconciliation.latest(services.database), DEADLINE_S)
    except (TimeoutError, PenstockError):
        return table
    if row is not None:
        table[telemetry.RECONCILIATION_AGE][()] = max(0.0, time.time() - row["ended_at"].timestamp())
        table[telemetry.RECONCILIATION_DRIFT][()] = row["drift"]
        table[telemetry.RECONCILIATION_FINDINGS][()] = len(json.loads(row["findings"]))
    return table


async def _holders(services: Services) -> list[Holder]:
    try:
        limit = timedelta(seconds=services.settings.horizon_s)
        return await asyncio.wait_for(horizon(services.database, limit), DEADLINE_S)
    except (TimeoutError, PenstockError):
        return []  # the database is away or slow, which /health says


async def _dead_samples(services: Services) -> SampleTable:
    """Dead letters, from the counts that all processes share; no samples while the database is away."""
    try:
        page, (drift, recounted_at) = await asyncio.wait_for(
            asyncio.gather(
                status_page(services, MOST_GROUPS, 0, ages=True),
                dead_letter_queries.drift(services.database),
            ),
            DEADLINE_S,
        )
    except (TimeoutError, PenstockError):
        return {exported: {} for exported in DEAD}
    now = time.time()
    counts: Samples = {(row.queue, row.group or ""): 0 for row in page.rows}
    ages: Samples = {}
    for row in page.rows:  # groups that were deleted share a name
        key = (row.queue, row.group or "")
        counts[key] += row.messages
        if row.oldest_at is not None:
            ages[key] = max(ages.get(key, 0.0), now - row.oldest_at.timestamp())
    return {
        telemetry.DEAD_JOB_COUNT: counts,
        telemetry.DEAD_LETTERS: counts,
        telemetry.DEAD_LETTER_OLDEST_AGE: ages,
        telemetry.DEAD_LETTER_DRIFT: {(): drift},
        telemetry.DEAD_LETTER_RECOUNT_AGE: {(): now - recounted_at.timestamp()} if recounted_at else {},
    }


async def _progress(services: Services) -> dict[str, Any] | None:
    """The pipeline's last report; None if there is none, or Redis is away or slow."""
    try:
        return await asyncio.wait_for(read_progress_async(services.redis), DEADLINE_S)
    except (TimeoutError, RedisError, OSError, ValueError):
        return None


def _pipeline_samples(progress: dict[str, Any] | None) -> SampleTable:
    """What the pipeline said of itself. Without a report the metrics have no samples."""
    now = time.time()
    reports = {(name,): report for name, report in (progress or {}).get("metrics", {}).items()}

    def per_metric(field: str, scale: float = 1.0) -> Samples:
        return {metric: report[field] * scale for metric, report in reports.items()}

    return {
        telemetry.PIPELINE_REPORT_AGE: {(): now - float(progress["at"])} if progress else {},
        telemetry.PIPELINE_FRESHNESS_AGE: {
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
        telemetry.PIPELINE_INPUT_RATE: per_metric("input_rows_per_s"),
        telemetry.PIPELINE_PROCESSED_RATE: per_metric("processed_rows_per_s"),
        telemetry.PIPELINE_BATCH_DURATION: per_metric("batch_ms", 1 / 1000),
        telemetry.PIPELINE_REJECTED: per_metric("rejected"),
        telemetry.PIPELINE_LOST: per_metric("lost"),
    }
