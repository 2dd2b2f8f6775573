"""A receiver of OpenTelemetry's protocol over HTTP, which keeps the spans and metrics that it gets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from penstock.embedded.servers.ports import LOOPBACK
from tests.waiting import wait_until

SERVER, CLIENT, PRODUCER, CONSUMER = (
    Span.SPAN_KIND_SERVER,
    Span.SPAN_KIND_CLIENT,
    Span.SPAN_KIND_PRODUCER,
    Span.SPAN_KIND_CONSUMER,
)

Attributes = dict[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    service: str
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    """Empty for the root of a trace."""
    links: list[str]
    """The ids of the linked spans."""
    attributes: Attributes
    is_error: bool
    duration_s: float


@dataclass(frozen=True, slots=True)
class ReceivedPoint:
    service: str
    attributes: Attributes
    value: float


@dataclass(slots=True)
class OtlpReceiver:
    endpoint: str
    spans: list[ReceivedSpan] = field(default_factory=list)
    points: dict[str, list[ReceivedPoint]] = field(default_factory=dict)
    """The points of all exports, by the name of their metric."""
    bodies: list[bytes] = field(default_factory=list)

    def find(self, name: str, service: str | None = None) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name and service in (None, span.service)]

    def wait_for(self, name: str, count: int = 1, service: str | None = None) -> list[ReceivedSpan]:
        """Wait until so many spans of a name have arrived."""

        def found() -> list[ReceivedSpan]:
            spans = self.find(name, service)
            assert len(spans) >= count, sorted({span.name for span in self.spans})
            return spans

        return wait_until(found, 20, f"{count} spans {name!r} arrive")

    def receive_spans(self, body: bytes) -> None:
        for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = str(_read(resource_spans.resource.attributes)["service.name"])
            for scope_spans in resource_spans.scope_spans:
                self.spans += [_read_span(span, service) for span in scope_spans.spans]

    def receive_metrics(self, body: bytes) -> None:
        for resource_metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            service = str(_read(resource_metrics.resource.attributes)["service.name"])
            for metric in (m for scope in resource_metrics.scope_metrics for m in scope.metrics):
                points = self.points.setdefault(metric.name, [])
                for number in [*metric.sum.data_points, *metric.gauge.data_points]:
                    value = number.as_double if number.HasField("as_double") else number.as_int
                    points.append(ReceivedPoint(service, _read(number.attributes), value))
                for histogram in metric.histogram.data_points:
                    points.append(ReceivedPoint(service, _read(histogram.attributes), histogram.count))


@contextmanager
def running_receiver() -> Iterator[OtlpReceiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.bodies.append(body)
            if self.path == "/v1/traces":
                receiver.receive_spans(body)
            else:
                assert self.path == "/v1/metrics"
                receiver.receive_metrics(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    receiver = OtlpReceiver(f"http://{LOOPBACK}:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()


def _read_span(span: Span, service: str) -> ReceivedSpan:
    return ReceivedSpan(
        service,
        span.name,
        span.kind,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        [link.span_id.hex() for link in span.links],
        _read(span.attributes),
        span.status.code == 2,
        (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
    )


def _read(attributes: list[KeyValue]) -> Attributes:
    return {attribute.key: _value(attribute.value) for attribute in attributes}


def _value(value: AnyValue) -> str | int | float | bool:
    kind = value.WhichOneof("value")
    assert kind is not None
    content: str | int | float | bool = getattr(value, kind)
    return content
