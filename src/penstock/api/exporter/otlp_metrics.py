"""Export the samples of `GET /metrics` to an OpenTelemetry collector, at intervals.

Nothing is counted twice: the samples are collected as for a scrape. Of the processes behind a port, the one
with slot 0 exports for all of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    NumberDataPoint,
    Sum,
)

from penstock.api.exporter.process_samples import Samples, SampleTable
from penstock.api.exporter.worker_aggregate import summary_values
from penstock.background import BackgroundTask
from penstock.otlp.exporters import Exporters, metrics_interval_s
from penstock.telemetry import ExportedMetric, MetricType

logger = logging.getLogger(__name__)

UNKNOWN_START = 0
"""The counters of a replaced process continue, so the start of this one is not theirs."""


class OtlpMetrics(BackgroundTask):
    """Collects the samples at intervals and sends them."""

    task_name = "OTLP metrics"

    def __init__(self, exporters: Exporters, collect: Callable[[], Awaitable[SampleTable]]) -> None:
        self._exporters = exporters
        self._collect = collect
        self._interval_s = metrics_interval_s()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self.send()

    async def send(self) -> None:
        """Collect the samples now and send them."""
        try:
            samples = await self._collect()
        except Exception:
            logger.exception("cannot collect the metrics for the export")  # the next interval tries again
            return
        self._exporters.send_metrics(list(to_metrics(samples, time.time_ns())))


def to_metrics(table: SampleTable, now_ns: int) -> Iterator[Metric]:
    """Convert samples to metrics of OpenTelemetry. A summary becomes two sums, as `GET /metrics` shows it."""
    for metric, values in table.items():
        if not values:
            continue
        if metric.type is not MetricType.SUMMARY:
            yield _to_metric(metric, metric.name, values, now_ns)
            continue
        summaries = summary_values(values, metric)
        for component in ("sum", "count"):
            samples = {labels: summary[component] for labels, summary in summaries.items()}
            yield _to_metric(metric, f"{metric.name}_{component}", samples, now_ns)


def _to_metric(metric: ExportedMetric, name: str, samples: Samples, now_ns: int) -> Metric:
    points = [
        NumberDataPoint(dict(zip(metric.all_labels, labels, strict=True)), UNKNOWN_START, now_ns, value)
        for labels, value in samples.items()
    ]
    data: Gauge | Sum = Gauge(points)
    if metric.type is not MetricType.GAUGE:
        data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
    return Metric(name, metric.help, "", data)
