"""Exporters of a client whose application has set up none. OpenTelemetry's variables configure them."""

from __future__ import annotations

import os
from functools import lru_cache

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

DEFAULT_SERVICE_NAME = "penstock-client"


@lru_cache(maxsize=1)
def own_providers() -> tuple[TracerProvider, MeterProvider]:
    """Return the providers that all clients of this process share. They send what is left at its exit."""
    resource = Resource.create()
    if not os.environ.get("OTEL_SERVICE_NAME") and "service.name" not in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    ):
        resource = resource.merge(Resource({"service.name": DEFAULT_SERVICE_NAME}))
    tracer_provider = TracerProvider(resource=resource)
    tracer_provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    readers = []
    if os.environ.get("OTEL_METRICS_EXPORTER", "otlp").strip().lower() != "none":
        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    return tracer_provider, MeterProvider(readers, resource)
