"""Build the ASGI application."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.telemetry import TelemetryConfig
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from penstock import __version__, console
from penstock.api import openapi, problems
from penstock.api.access import check_declarations
from penstock.api.console_files import ConsoleFiles, file_response, read_file
from penstock.api.guide_files import GUIDE_PATH, GuideFiles, redirect_to_guide
from penstock.api.http.audit_middleware import AuditMiddleware, audited_calls
from penstock.api.http.client_address import TrustedProxies
from penstock.api.http.compression import CompressionMiddleware
from penstock.api.http.origin_check import OriginCheck, OriginCheckMiddleware
from penstock.api.http.quota_counting import ByteQuotaMiddleware
from penstock.api.http.request_ids import RequestIdMiddleware
from penstock.api.http.security_headers import SecurityHeadersMiddleware
from penstock.api.module_preload import read_page
from penstock.api.otlp_export import exporting_metrics, start_exporters
from penstock.api.routes import (
    access_tokens,
    ack_and_transaction,
    alert_channels,
    alert_incidents,
    alert_rule_tests,
    alert_rules,
    alert_silences,
    analytics,
    audit_entries,
    bulk_jobs,
    chart_annotations,
    configure,
    console_pages,
    console_session,
    dead_letter_jobs,
    dead_letters,
    dead_task_admin,
    diagnostics,
    environments,
    error_groups,
    groups,
    health,
    live_events,
    login,
    message_admin,
    message_life,
    message_search,
    operations,
    pipeline_status,
    prometheus,
    push_pop,
    queen_compatibility,
    queues,
    quotas,
    run_queue_tasks,
    run_queues,
    scaling,
    series,
    status,
    tasks,
    traces,
    webhook_broker,
    worker_health,
)
from penstock.api.services import open_services
from penstock.api.sigterm_drain import draining_on_sigterm
from penstock.api.unknown_queues import handle_unknown_queue
from penstock.config import Settings, load_settings
from penstock.errors import PenstockError, UnknownQueue
from penstock.log_format import configure_logging

ROUTE_MODULES = (
    *(bulk_jobs, error_groups),
    *(configure, queues, groups, operations, chart_annotations),
    *(message_search, message_life, message_admin, traces),
    *(dead_letters, dead_letter_jobs, webhook_broker, access_tokens, environments, quotas),
    *(run_queue_tasks, run_queues, dead_task_admin, tasks),
    *(status, diagnostics, pipeline_status, series, scaling, prometheus, health),
    *(analytics, worker_health, queen_compatibility),
    *(console_session, console_pages, live_events, login, audit_entries),
    *(alert_channels, alert_rule_tests, alert_rules, alert_incidents, alert_silences),
)
PUBLIC_PATHS = frozenset(
    {
        "/",
        "/console/{page:path}",
        "/favicon.ico",
        "/static",
        "/docs",
        GUIDE_PATH,
        "/openapi.json",
        "/static-offline-docs",
    }
)
"""The console, the guide, the documentation of the API and their files: pages without data."""
FRAMEWORK_TELEMETRY: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "auto_configure": False,
}
"""FastAPI's own spans and logs would contain queries and errors. `otlp_export` has those of Penstock."""
GC_THRESHOLD = 20_000
"""Run the cyclic garbage collector after so many more allocations than deallocations."""


def create_app_from_environment() -> FastAPI:
    """The application of one worker process, with the settings of its environment."""
    settings = load_settings()
    configure_logging(settings.log_level, settings.log_format, "broker")
    app = create_app(settings)
    # The objects created so far stay, and requests create next to no reference cycles: collect rarely.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    return app


def create_app(settings: Settings) -> FastAPI:
    """The application for these settings. It connects to no server before it starts, and then lazily."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_services(settings) as services:
            app.state.services = services
            async with exporting_metrics(app, services):
                with draining_on_sigterm(settings.drain_s, services.begin_drain):
                    yield

    # FastAPIOffline serves the files of Swagger UI, so /docs works offline. Its page has an inline script.
    app = FastAPIOffline(
        docs_url=None,
        redoc_url=None,
        title="Penstock",
        version=__version__,
        lifespan=lifespan,
        telemetry=FRAMEWORK_TELEMETRY,
    )
    app.state.trusted_proxies = TrustedProxies(settings)
    app.state.origin_check = OriginCheck(settings)
    app.add_middleware(OriginCheckMiddleware, origin_check=app.state.origin_check)
    app.add_middleware(SecurityHeadersMiddleware)
    app.add_middleware(ByteQuotaMiddleware)
    app.add_middleware(CompressionMiddleware)
    app.add_exception_handler(UnknownQueue, handle_unknown_queue)
    app.add_exception_handler(PenstockError, problems.handle_penstock_error)
    app.add_exception_handler(HTTPException, problems.handle_http_exception)
    app.add_exception_handler(RequestValidationError, problems.handle_validation_error)
    app.add_exception_handler(Exception, problems.handle_unexpected_error)
    app.router.routes.extend([*push_pop.ROUTES, *ack_and_transaction.ROUTES])
    for module in ROUTE_MODULES:
        app.include_router(module.router)
    app.add_route("/", _console_page, include_in_schema=False)
    app.add_route("/console/{page:path}", _console_page, include_in_schema=False)
    app.add_route("/docs", _api_page, include_in_schema=False)
    app.add_route(GUIDE_PATH, redirect_to_guide, include_in_schema=False)
    app.mount(GUIDE_PATH, GuideFiles(console.GUIDE), name="guide")
    app.add_route("/favicon.ico", _console_icon, include_in_schema=False)
    app.mount("/static", ConsoleFiles(directory=console.STATIC), name="static")
    access = check_declarations(app, [module.router for module in ROUTE_MODULES], PUBLIC_PATHS)
    openapi.describe_app(app, access)
    routes = [route for module in ROUTE_MODULES for route in module.router.routes]
    app.add_middleware(AuditMiddleware, calls=audited_calls(access), routes=routes)
    app.add_middleware(RequestIdMiddleware)
    start_exporters(app, settings)
    return app


async def _console_page(request: Request) -> Response:
    """The console. Its script shows the page of the path."""
    page = await asyncio.to_thread(read_page, console.STATIC, request.url.path)
    return file_response(page, "index.html", request.headers)


async def _api_page(request: Request) -> Response:
    return _page(request, "docs.html")


async def _console_icon(request: Request) -> Response:
    """The icon of the console, at the path that browsers request for pages without one, such as /docs."""
    return _page(request, "icon.svg")


def _page(request: Request, name: str) -> Response:
    path = console.STATIC / name
    return file_response(read_file(path), name, request.headers)
