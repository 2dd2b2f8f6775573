"""Find out whether the application uses OpenTelemetry."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client.tracing.spans import Tracing

logger = logging.getLogger("penstock.client")

API_MODULE = "opentelemetry.trace"
ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROTOCOL = "http/protobuf"


def find_tracing() -> Tracing | None:
    """Return the tracing of a new client; None without OpenTelemetry, which is then not imported.

    The providers of the application come first. If it has none and the variables name an endpoint, the client
    exports its own spans and metrics.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if API_MODULE in sys.modules and _has_provider():
        from penstock.client.tracing.spans import Tracing

        return Tracing.of_application()
    if not any(os.environ.get(variable) for variable in ENDPOINT_VARIABLES):
        return None
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or PROTOCOL
    if protocol != PROTOCOL:
        logger.warning(
            "The client exports no spans with %r. Set OTEL_EXPORTER_OTLP_PROTOCOL=%s, or set up "
            "OpenTelemetry in the application.",
            *(protocol, PROTOCOL),
        )
        return None
    try:
        from penstock.client.tracing.own_providers import own_providers
        from penstock.client.tracing.spans import Tracing
    except ImportError:
        logger.warning(
            "An endpoint of OpenTelemetry is set, but its SDK is not installed: the client exports no spans. "
            "Install penstock-mq[otel]."
        )
        return None
    return Tracing(*own_providers())


def _has_provider() -> bool:
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    return not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)
