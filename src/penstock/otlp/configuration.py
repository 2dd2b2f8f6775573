"""Read OpenTelemetry's standard variables: whether to export, and where to."""

from __future__ import annotations

import importlib.util
import logging
import os
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from penstock.otlp.exporters import Exporters

logger = logging.getLogger(__name__)

Signal = Literal["TRACES", "METRICS"]
SDK_MODULES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
PROTOCOL = "http/protobuf"


def find_endpoint(signal: Signal) -> str | None:
    """Return the endpoint that the variables name for spans or metrics; None if they ask for no export."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp").strip().lower() == "none":
        return None
    return (
        os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
        or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
        or None
    )


def find_problem() -> str | None:
    """Return why nothing can be exported although an endpoint is named, and what to do; None if it can."""
    try:
        is_installed = all(importlib.util.find_spec(module) for module in SDK_MODULES)
    except ModuleNotFoundError:
        is_installed = False
    if not is_installed:
        return "OpenTelemetry's SDK is not installed. Install penstock-mq[otel]."
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or PROTOCOL
    if protocol != PROTOCOL:
        return f"Penstock does not export with {protocol!r}. Set OTEL_EXPORTER_OTLP_PROTOCOL={PROTOCOL}."
    return None


def exports_spans() -> bool:
    """Whether this process exports spans."""
    return find_endpoint("TRACES") is not None and find_problem() is None


def load_exporters(component: str, instance: str) -> Exporters | None:
    """Start the exporters of a process; None if the variables name no endpoint.

    A problem is logged and disables the export: telemetry never stops a queue.
    """
    if find_endpoint("TRACES") is None and find_endpoint("METRICS") is None:
        return None
    problem = find_problem()
    if problem is not None:
        logger.warning("No spans and metrics are exported: %s", problem)
        return None
    from penstock.otlp.exporters import Exporters

    return Exporters(component, instance)
