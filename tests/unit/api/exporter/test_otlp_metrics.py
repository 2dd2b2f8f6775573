"""Samples of `GET /metrics` as metrics of OpenTelemetry."""

from __future__ import annotations

from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Sum

from penstock import telemetry
from penstock.api.exporter.otlp_metrics import to_metrics
from penstock.api.exporter.process_samples import SampleTable
from penstock.telemetry import EXPORTED_METRICS, MetricType

NOW_NS = 1_700_000_000_000_000_000


def test_counters_and_gauges_keep_their_names_labels_and_values() -> None:
    table: SampleTable = {
        telemetry.CLIENT_REQUESTS: {("push",): 3.0, ("pop",): 2.0},
        telemetry.WORKERS: {(): 1.0},
        telemetry.WORKER_RESIDENT_MEMORY: {("0",): 5.0},
        telemetry.PARKED_POPS: {},
    }
    requests, workers, memory = to_metrics(table, NOW_NS)
    assert (requests.name, requests.description) == ("penstock_requests", telemetry.CLIENT_REQUESTS.help)
    assert isinstance(requests.data, Sum)
    assert requests.data.is_monotonic
    assert requests.data.aggregation_temporality is AggregationTemporality.CUMULATIVE
    assert [(point.attributes, point.value, point.time_unix_nano) for point in requests.data.data_points] == [
        ({"operation": "push"}, 3.0, NOW_NS),
        ({"operation": "pop"}, 2.0, NOW_NS),
    ]
    assert isinstance(workers.data, Gauge)
    assert workers.data.data_points[0].attributes == {}
    assert isinstance(memory.data, Gauge)
    assert memory.data.data_points[0].attributes == {"worker": "0"}


def test_a_summary_becomes_two_counters() -> None:
    summary = next(metric for metric in EXPORTED_METRICS if metric.type is MetricType.SUMMARY)
    labels = tuple(f"value of {name}" for name in summary.all_labels)
    metrics = list(to_metrics({summary: {(*labels, "sum"): 1.5, (*labels, "count"): 4.0}}, NOW_NS))
    assert [metric.name for metric in metrics] == [f"{summary.name}_sum", f"{summary.name}_count"]
    for metric, value in zip(metrics, (1.5, 4), strict=True):
        assert isinstance(metric.data, Sum)
        [point] = metric.data.data_points
        assert (point.value, tuple((point.attributes or {}).values())) == (value, labels)
