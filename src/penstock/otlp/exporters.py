"""The exporters of a process. They work in threads of their own, in bounded memory.

While the collector is unreachable, spans and metrics are dropped, and the log says so once. OpenTelemetry's
own variables set the headers, the sampler, the sizes of batches and the intervals.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    Metric,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Tracer

from penstock import __version__
from penstock.config import mask_url
from penstock.otlp.configuration import find_endpoint

logger = logging.getLogger(__name__)

SCOPE = "penstock"
CLOSE_TIMEOUT_S = 3.0
"""How long a process that ends waits for its last spans and metrics to arrive."""
DEFAULT_METRICS_INTERVAL_MS = 60_000


class Exporters:
    """Spans and metrics of this process on their way to the collector."""

    def __init__(self, component: str, instance: str) -> None:
        # Every failed export would log a traceback; `_FailureLog` says it once.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
        self._resource = _describe_process(component, instance)
        self.tracer: Tracer | None = None
        """None if spans are not exported."""
        self._tracer_provider: TracerProvider | None = None
        self._meter_provider: MeterProvider | None = None
        self._metric_exporter: _LoggedMetricExporter | None = None
        self._metric_thread: threading.Thread | None = None
        spans_endpoint, metrics_endpoint = find_endpoint("TRACES"), find_endpoint("METRICS")
        if spans_endpoint is not None:
            self._tracer_provider = TracerProvider(resource=self._resource, shutdown_on_exit=False)
            exporter = _LoggedSpanExporter(_FailureLog("spans", spans_endpoint))
            self._tracer_provider.add_span_processor(BatchSpanProcessor(exporter))
            self.tracer = self._tracer_provider.get_tracer(SCOPE, __version__)
        if metrics_endpoint is not None:
            self._metric_exporter = _LoggedMetricExporter(_FailureLog("metrics", metrics_endpoint))

    @property
    def exports_metrics(self) -> bool:
        return self._metric_exporter is not None

    def open_meter(self) -> Meter | None:
        """Return a meter for instruments, which are exported at intervals; None if metrics are not."""
        if self._metric_exporter is None:
            return None
        if self._meter_provider is None:
            reader = PeriodicExportingMetricReader(self._metric_exporter)
            self._meter_provider = MeterProvider([reader], self._resource, shutdown_on_exit=False)
        return self._meter_provider.get_meter(SCOPE, __version__)

    def send_metrics(self, metrics: Sequence[Metric]) -> None:
        """Send metrics in a thread. They are dropped while the previous ones are still on their way."""
        exporter = self._metric_exporter
        if exporter is None or (self._metric_thread is not None and self._metric_thread.is_alive()):
            return
        scope_metrics = ScopeMetrics(InstrumentationScope(SCOPE, __version__), metrics, "")
        data = MetricsData([ResourceMetrics(self._resource, [scope_metrics], "")])
        self._metric_thread = _start_thread(lambda: exporter.export(data))

    def close(self) -> None:
        """Send what is left, and give up after a few seconds."""
        threads = [self._metric_thread] if self._metric_thread is not None else []
        threads += [
            _start_thread(provider.shutdown)
            for provider in (self._tracer_provider, self._meter_provider)
            if provider is not None
        ]
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def metrics_interval_s() -> float:
    """Return the seconds between two exports of metrics, as OpenTelemetry's variable sets them."""
    try:
        interval_ms = float(os.environ["OTEL_METRIC_EXPORT_INTERVAL"])
    except (KeyError, ValueError):
        interval_ms = 0
    return (interval_ms if interval_ms > 0 else DEFAULT_METRICS_INTERVAL_MS) / 1000


class _FailureLog:
    """Logs that exports fail, and that they succeed again, once each."""

    def __init__(self, content: str, endpoint: str) -> None:
        self._content = content
        self._endpoint = mask_url(endpoint)
        self._is_failing = False

    def note(self, *, succeeded: bool) -> None:
        if not succeeded and not self._is_failing:
            logger.warning(
                "Cannot export %s to %s; they are dropped until it accepts them. "
                "Check OTEL_EXPORTER_OTLP_ENDPOINT and its collector.",
                *(self._content, self._endpoint),
            )
        elif succeeded and self._is_failing:
            logger.info("%s are exported to %s again", self._content.capitalize(), self._endpoint)
        self._is_failing = not succeeded


class _LoggedSpanExporter(SpanExporter):
    def __init__(self, failures: _FailureLog) -> None:
        self._exporter = OTLPSpanExporter()
        self._failures = failures

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        self._failures.note(succeeded=result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


class _LoggedMetricExporter(OTLPMetricExporter):
    def __init__(self, failures: _FailureLog) -> None:
        super().__init__()
        self._failures = failures

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **options: object
    ) -> MetricExportResult:
        result = super().export(metrics_data, timeout_millis, **options)
        self._failures.note(succeeded=result is MetricExportResult.SUCCESS)
        return result


def _describe_process(component: str, instance: str) -> Resource:
    """Return the resource of this process. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override it."""
    own = Resource.create(
        {
            "service.name": f"penstock-{component}",
            "service.version": __version__,
            "service.instance.id": instance,
        }
    )
    return own.merge(OTELResourceDetector().detect())


def _start_thread(work: Callable[[], object]) -> threading.Thread:
    """Start a thread that does not keep the process from ending."""
    thread = threading.Thread(target=work, name="otlp export", daemon=True)
    thread.start()
    return thread
