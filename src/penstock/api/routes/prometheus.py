"""`GET /metrics`: the metrics of the brokers behind this port and of the pipeline, for Prometheus."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import APIRouter
from prometheus_client import exposition as text_format
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from redis import RedisError
from starlette.requests import Request
from starlette.responses import Response

from penstock import telemetry
from penstock.api.access import MetricsAccess
from penstock.api.exporter.alert_samples import alert_samples
from penstock.api.exporter.process_samples import Samples, SampleTable
from penstock.api.exporter.queue_samples import queue_samples
from penstock.api.exporter.quota_samples import quota_samples
from penstock.api.exporter.worker_aggregate import summary_values
from penstock.api.problems import described
from penstock.api.services import Services, get_services
from penstock.caller import LOCAL_CALLER, Caller
from penstock.definitions import DEFINITIONS
from penstock.errors import PenstockError
from penstock.model import Scope
from penstock.streams.positions import read_lags_async
from penstock.streams.progress import RUNNING, is_pipeline_running, read_progress_async
from penstock.telemetry import EXPORTED_METRICS, MetricType

router = APIRouter(tags=["metrics"])

TIMEOUT_S = 2.0
MAX_GROUPS = 10_000


class _SampleCollector:
    """Presents samples to prometheus_client, which calls `collect`."""

    def __init__(self, samples: SampleTable) -> None:
        self._samples = samples

    def collect(self) -> Iterable[Metric]:
        for metric in EXPORTED_METRICS:
            values = self._samples.get(metric, {})
            if metric.type is MetricType.SUMMARY:
                summary = SummaryMetricFamily(metric.name, metric.help, labels=metric.all_labels)
                for labels, summed in summary_values(values, metric).items():
                    summary.add_metric(labels, int(summed["count"]), summed["sum"])
                yield summary
                continue
            family_type = CounterMetricFamily if metric.type is MetricType.COUNTER else GaugeMetricFamily
            family = family_type(metric.name, metric.help, labels=metric.all_labels)
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family


DESCRIPTION = "\n".join(
    [
        "Counters and gauges in the OpenMetrics format, or in the older text format if `Accept` asks for it.",
        "Any worker answers for all workers behind its port.",
        "",
        "| Metric | Type | Labels | Meaning |",
        "|---|---|---|---|",
        *(
            f"| `{e.name}` | {e.type} | {', '.join(e.all_labels) or '–'} | {e.help} |"
            for e in EXPORTED_METRICS
        ),
    ]
)


@router.get(
    "/metrics",
    response_class=Response,
    description=DESCRIPTION,
    responses=described(200, "the samples", "application/openmetrics-text", "text/plain"),
)
async def prometheus(request: Request, caller: MetricsAccess) -> Response:
    collector = await _collect_samples(get_services(request), caller)
    accept = request.headers.get("accept", "")
    if "text/plain" in accept and "openmetrics" not in accept:
        return _text_response(collector)
    body: bytes = generate_latest(collector)  # type: ignore[no-untyped-call]
    return Response(body, media_type=CONTENT_TYPE_LATEST)


@router.get(
    "/metrics/prometheus", response_class=Response, responses=described(200, "the samples", "text/plain")
)
async def prometheus_text(request: Request, caller: MetricsAccess) -> Response:
    """The metrics of `/metrics` in the older text format: the path at which Queen 0.15 has its own."""
    return _text_response(await _collect_samples(get_services(request), caller))


def _text_response(collector: _SampleCollector) -> Response:
    return Response(text_format.generate_latest(collector), media_type=text_format.CONTENT_TYPE_LATEST)


async def _collect_samples(services: Services, caller: Caller) -> _SampleCollector:
    """Collect the samples of the caller's environment; of all and of the platform for its administrators."""
    if caller.is_platform_admin:
        return _SampleCollector(await collect_all_samples(services, caller))
    samples = await _environment_samples(services, caller, [caller.environment])
    return _SampleCollector(
        {
            metric: {labels: value for labels, value in values.items() if labels[:3] == caller.environment}
            for metric, values in samples.items()
            if metric.is_of_environment
        }
    )


async def collect_all_samples(services: Services, caller: Caller = LOCAL_CALLER) -> SampleTable:
    """Collect the samples of all environments and of the platform, which administrators may read."""
    known_environments = services.tokens.environments()
    environments = [known.scope for known in known_environments if not known.is_being_deleted]
    of_environments, of_platform = await asyncio.gather(
        _environment_samples(services, caller, environments), _platform_samples(services)
    )
    return of_environments | of_platform


async def _environment_samples(
    services: Services, caller: Caller, environments: Sequence[Scope]
) -> SampleTable:
    """The samples of the broker processes, and of these environments."""
    queues, dead_letters, alerts = await asyncio.gather(
        queue_samples(services, environments),
        _dead_letter_samples(services, environments),
        alert_samples(services, environments),
    )
    quotas = quota_samples(services, caller)
    return services.worker_aggregate.samples() | queues | dead_letters | alerts | quotas


async def _platform_samples(services: Services) -> SampleTable:
    vacuum_horizon, pipeline, dead_letter_counts, reconciliation = await asyncio.gather(
        _vacuum_horizon_samples(services),
        _pipeline_samples(services),
        _dead_letter_count_samples(services),
        _reconciliation_samples(services),
    )
    depth = services.broker.journal.depth() if services.broker.journal is not None else None
    return {
        **(vacuum_horizon | pipeline | dead_letter_counts | reconciliation),
        telemetry.JOURNAL_RECORDS: {(): depth.records} if depth else {},
        telemetry.JOURNAL_BYTES: {(): depth.bytes} if depth else {},
    }


async def _reconciliation_samples(services: Services) -> SampleTable:
    """The last comparison of totals with the log; no samples before the first, or without PostgreSQL."""
    table: SampleTable = {
        telemetry.RECONCILIATION_AGE: {},
        telemetry.RECONCILIATION_DRIFT: {},
        telemetry.RECONCILIATION_FINDINGS: {},
    }
    try:
        report = await asyncio.wait_for(services.broker.store.reconciliation.latest(), TIMEOUT_S)
    except (TimeoutError, PenstockError):
        return table
    if report is not None:
        table[telemetry.RECONCILIATION_AGE][()] = max(0.0, time.time() - report.ended_at.timestamp())
        table[telemetry.RECONCILIATION_DRIFT][()] = report.drift
        table[telemetry.RECONCILIATION_FINDINGS][()] = len(json.loads(report.findings))
    return table


async def _vacuum_horizon_samples(services: Services) -> SampleTable:
    work = services.broker.diagnostics.vacuum_horizon_holders(services.settings.horizon_s)
    try:
        holders = await asyncio.wait_for(work, TIMEOUT_S)
    except (TimeoutError, PenstockError):
        holders = []  # PostgreSQL is unreachable or slow; /health reports it
    return {telemetry.VACUUM_HORIZON_AGE: {(holder.kind, holder.name): holder.age_s for holder in holders}}


async def _dead_letter_samples(services: Services, environments: Sequence[Scope]) -> SampleTable:
    """Dead letters, from the counts that all processes share; no samples while PostgreSQL is unreachable."""
    counts: Samples = {}
    ages: Samples = {}
    now = time.time()
    for environment in environments:
        count_page = services.broker.dead_letters.count_page(environment, MAX_GROUPS, 0, ages=True)
        try:
            page = await asyncio.wait_for(count_page, TIMEOUT_S)
        except (TimeoutError, PenstockError):
            break
        for row in page.rows:  # deleted groups share one name
            labels = (*environment, row.queue, row.group or "")
            counts[labels] = counts.get(labels, 0) + row.messages
            if row.oldest_at is not None:
                ages[labels] = max(ages.get(labels, 0.0), now - row.oldest_at.timestamp())
    return {
        telemetry.DEAD_JOB_COUNT: counts,
        telemetry.DEAD_LETTERS: counts,
        telemetry.DEAD_LETTER_OLDEST_AGE: ages,
    }


async def _dead_letter_count_samples(services: Services) -> SampleTable:
    """How well the counts of dead letters agree with the dead letters."""
    table: SampleTable = {telemetry.DEAD_LETTER_DRIFT: {}, telemetry.DEAD_LETTER_RECOUNT_AGE: {}}
    try:
        drift, recounted_at = await asyncio.wait_for(services.broker.dead_letters.read_drift(), TIMEOUT_S)
    except (TimeoutError, PenstockError):
        return table
    table[telemetry.DEAD_LETTER_DRIFT][()] = drift
    if recounted_at is not None:
        table[telemetry.DEAD_LETTER_RECOUNT_AGE][()] = time.time() - recounted_at.timestamp()
    return table


async def _pipeline_samples(services: Services) -> SampleTable:
    """The last report of the pipeline, and the lag of its streams; no samples without Redis."""
    keys = [key for definition in DEFINITIONS for key in definition.stream_keys]
    try:
        progress, lags = await asyncio.wait_for(
            asyncio.gather(read_progress_async(services.redis), read_lags_async(services.redis, keys)),
            TIMEOUT_S,
        )
    except (TimeoutError, RedisError, OSError, ValueError):
        return _report_samples(None) | {telemetry.PIPELINE_LAG: {}}
    lag_samples: Samples = {(stream,): lag for stream, lag in lags.items() if lag is not None}
    return _report_samples(progress) | {telemetry.PIPELINE_LAG: lag_samples}


def _report_samples(progress: dict[str, Any] | None) -> SampleTable:
    """Samples from the last report of the pipeline. An old report says nothing about rates any more."""
    now = time.time()
    reports = {(name,): report for name, report in (progress or {}).get("metrics", {}).items()}
    current_reports = reports if is_pipeline_running(progress) else {}

    def per_metric(field: str, scale: float = 1.0) -> Samples:
        return {labels: report[field] * scale for labels, report in current_reports.items()}

    return {
        telemetry.PIPELINE_REPORT_AGE: {(): now - float(progress["at"])} if progress else {},
        telemetry.PIPELINE_QUERY_RUNNING: {
            labels: float(labels in current_reports and report.get("state") == RUNNING)
            for labels, report in reports.items()
        },
        telemetry.PIPELINE_QUERY_FAILURES: {
            labels: report.get("failures", 0) for labels, report in reports.items()
        },
        telemetry.PIPELINE_QUERY_RESTARTS: {
            labels: report.get("restarts", 0) for labels, report in reports.items()
        },
        telemetry.PIPELINE_FRESHNESS_AGE: {
            labels: max(0.0, now - report["freshness"])
            for labels, report in reports.items()
            if report["freshness"] is not None
        },
        telemetry.PIPELINE_INPUT_RATE: per_metric("input_rows_per_s"),
        telemetry.PIPELINE_PROCESSED_RATE: per_metric("processed_rows_per_s"),
        telemetry.PIPELINE_BATCH_DURATION: per_metric("batch_ms", 1 / 1000),
        telemetry.PIPELINE_REJECTED: {labels: report["rejected"] for labels, report in reports.items()},
        telemetry.PIPELINE_LOST: {labels: report["lost"] for labels, report in reports.items()},
    }
