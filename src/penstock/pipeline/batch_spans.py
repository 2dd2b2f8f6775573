"""A span for each finished batch of the pipeline, and metrics of its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opentelemetry.context import Context
from opentelemetry.metrics import Meter
from opentelemetry.trace import SpanKind, Tracer

from penstock.otlp.exporters import Exporters
from penstock.streams.batch_history import BatchRecord


class BatchSpans:
    """Exports batches after their end, in the order of their ends. No batch waits for an export."""

    def __init__(self, exporters: Exporters) -> None:
        self._tracer = exporters.tracer
        meter = exporters.open_meter()
        self._metrics = None if meter is None else _BatchMetrics(meter)

    def export(self, metric: str, batches: Sequence[BatchRecord]) -> None:
        """Export finished batches of a metric."""
        for batch in batches:
            parts = _part_durations_ms(batch)
            if self._tracer is not None:
                _record_span(self._tracer, metric, batch, parts)
            if self._metrics is not None:
                self._metrics.record(metric, batch, parts)


class _BatchMetrics:
    """What `GET /metrics` does not say about batches: it has the duration of the last one only."""

    def __init__(self, meter: Meter) -> None:
        self._entries = meter.create_counter(
            "penstock_pipeline_batch_entries", "", "stream entries in finished batches"
        )
        self._rows = meter.create_counter(
            "penstock_pipeline_batch_rows", "", "rows that finished batches inserted"
        )
        self._durations = meter.create_histogram(
            "penstock_pipeline_batch_part_seconds", "s", "duration of batches and of their parts"
        )

    def record(self, metric: str, batch: BatchRecord, parts: Mapping[str, float]) -> None:
        labels = {"metric": metric}
        self._entries.add(batch["entries"], labels)
        self._rows.add(batch["rows"], labels)
        for part, duration_ms in {"whole": batch["duration_ms"], **parts}.items():
            self._durations.record(duration_ms / 1000, {**labels, "part": part})


def _record_span(tracer: Tracer, metric: str, batch: BatchRecord, parts: Mapping[str, float]) -> None:
    """Record a span with the times of the batch. Its parts are attributes: Spark tells no starts."""
    started_ns = int(batch["started_at"] * 1e9)
    span = tracer.start_span(
        f"batch {metric}",
        Context(),
        SpanKind.INTERNAL,
        {
            "penstock.metric": metric,
            "penstock.batch.id": batch["batch_id"],
            "penstock.batch.entries": batch["entries"],
            "penstock.batch.rows": batch["rows"],
            **{f"penstock.batch.{part}_ms": duration_ms for part, duration_ms in parts.items()},
        },
        start_time=started_ns,
    )
    span.end(started_ns + int(batch["duration_ms"] * 1e6))


def _part_durations_ms(batch: BatchRecord) -> dict[str, float]:
    """Return the known parts of the duration."""
    durations = {
        "plan": batch["plan_ms"],
        "read": batch["read_ms"],
        "insert": batch["insert_ms"],
        "checkpoint": batch["checkpoint_ms"],
    }
    return {part: duration_ms for part, duration_ms in durations.items() if duration_ms is not None}
