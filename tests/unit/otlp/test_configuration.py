"""OpenTelemetry's variables: whether a process exports, where to, and what is said about problems."""

from __future__ import annotations

import logging

import pytest

from penstock.client.tracing.discovery import find_tracing
from penstock.otlp import configuration
from penstock.otlp.configuration import exports_spans, find_endpoint, load_exporters

COLLECTOR = "http://collector:4318"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    ("variables", "traces", "metrics"),
    [
        ({}, None, None),
        ({ENDPOINT: ""}, None, None),
        ({ENDPOINT: COLLECTOR}, COLLECTOR, COLLECTOR),
        ({ENDPOINT: COLLECTOR, "OTEL_SDK_DISABLED": "true"}, None, None),
        ({ENDPOINT: COLLECTOR, "OTEL_TRACES_EXPORTER": "none"}, None, COLLECTOR),
        ({ENDPOINT: COLLECTOR, "OTEL_METRICS_EXPORTER": "none"}, COLLECTOR, None),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": COLLECTOR}, COLLECTOR, None),
    ],
)
def test_variables_name_the_endpoints(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], traces: str | None, metrics: str | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (find_endpoint("TRACES"), find_endpoint("METRICS")) == (traces, metrics)
    assert exports_spans() == (traces is not None)


def test_a_missing_sdk_is_named_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(configuration, "SDK_MODULES", ("a_package_that_is_missing.sdk",))
    assert load_exporters("broker", "here") is None
    assert not caplog.records
    monkeypatch.setenv(ENDPOINT, COLLECTOR)
    assert load_exporters("broker", "here") is None
    assert not exports_spans()
    assert caplog.messages == [
        "No spans and metrics are exported: OpenTelemetry's SDK is not installed. Install penstock-mq[otel]."
    ]


def test_another_protocol_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ENDPOINT, COLLECTOR)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    caplog.set_level(logging.WARNING)
    assert load_exporters("broker", "here") is None
    assert find_tracing() is None
    assert len(caplog.messages) == 2
    assert all("OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" in message for message in caplog.messages)


def test_a_client_without_variables_has_no_tracing() -> None:
    assert find_tracing() is None
