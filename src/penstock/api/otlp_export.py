"""Export the spans and metrics of a broker process, if OpenTelemetry's variables ask for it.

OpenTelemetry's SDK is imported only then. Without it, requests take the same path as if there was no export.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from fastapi import FastAPI

from penstock.api.routes.prometheus import collect_all_samples
from penstock.api.services import Services
from penstock.config import Settings
from penstock.otlp.configuration import load_exporters

if TYPE_CHECKING:
    from penstock.otlp.exporters import Exporters


def start_exporters(app: FastAPI, settings: Settings) -> None:
    """Start the exporters of this process, and give each request of the API a span if spans are exported."""
    exporters = load_exporters("broker", f"{socket.gethostname()}:{settings.port}")
    app.state.exporters = exporters
    if exporters is not None and exporters.tracer is not None:
        from penstock.api.http.request_spans import RequestTracer, TracingMiddleware

        app.state.request_tracer = RequestTracer(exporters.tracer)
        app.add_middleware(TracingMiddleware, tracer=app.state.request_tracer)


@asynccontextmanager
async def exporting_metrics(app: FastAPI, services: Services) -> AsyncIterator[None]:
    """Export metrics at intervals. At the end, send what is left and close the exporters."""
    exporters: Exporters | None = app.state.exporters
    if exporters is None:
        yield
        return
    metrics = None
    if exporters.exports_metrics and services.worker_aggregate.is_first_process:
        from penstock.api.exporter.otlp_metrics import OtlpMetrics

        metrics = OtlpMetrics(exporters, partial(collect_all_samples, services))
        await metrics.start()
    try:
        yield
    finally:
        if metrics is not None:
            await metrics.stop()
            await metrics.send()
        await asyncio.to_thread(exporters.close)
