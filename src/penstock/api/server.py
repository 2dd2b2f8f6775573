"""Run broker processes on a port until they are stopped: `python -m penstock.api.server`.

This module imports no application code. A worker process imports it before it can report to the process
that supervises it, and the supervisor itself needs nothing else.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from typing import Any

import uvicorn

from penstock.access.people.provider_settings import check_provider_settings
from penstock.broker.self_metrics.worker_slot import clear_stale_slots
from penstock.config import Settings, as_environment, load_settings
from penstock.errors import PenstockError
from penstock.listen_address import check_listen_address
from penstock.log_format import configure_logging, logging_options
from penstock.otlp.configuration import exports_spans
from penstock.start_gate import must_wait, wait_for_start

logger = logging.getLogger(__name__)

APPLICATION_MODULE = "penstock.api.app"

TRACED_PROTOCOL = "penstock.api.http.traced_protocol:TracedHttpProtocol"
"""The protocol with a span for each hot request."""

SERVER_OPTIONS: dict[str, Any] = {
    "http": "penstock.api.http.fast_protocol:FastHttpProtocol",
    "ws": "none",
    "access_log": False,
    "proxy_headers": False,
    "server_header": False,
    "date_header": False,
    "timeout_keep_alive": 75,
    "timeout_graceful_shutdown": 10,
}
"""Options of uvicorn for connections and headers."""

WORKER_REPORT_TIMEOUT_S = 60
"""The supervisor replaces a worker that does not report for so long. On a busy machine, the start of Python
alone may take many seconds, and a worker that is replaced has to start again."""


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, finish the requests in flight, and return.

    Each of several workers is a process of its own, and all share the port; a worker that dies is replaced.
    Workers receive their settings through the environment. Raises ConfigError before anything starts.
    """
    check_provider_settings(settings)
    warning = check_listen_address(settings)
    if warning is not None:
        logger.warning(warning)
    os.environ.update(as_environment(settings))
    clear_stale_slots(settings)
    uvicorn.run(
        f"{APPLICATION_MODULE}:create_app_from_environment",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        log_level=settings.log_level,
        log_config=logging_options(settings.log_level, settings.log_format, "broker"),
        timeout_worker_healthcheck=WORKER_REPORT_TIMEOUT_S,
        **(SERVER_OPTIONS | ({"http": TRACED_PROTOCOL} if exports_spans() else {})),
        **tls_options(settings),
    )


def tls_options(settings: Settings) -> dict[str, Any]:
    """Return the options of uvicorn that serve the certificate of the settings, if they name one."""
    if not settings.tls_cert:
        return {}
    from penstock.api.tls_server import create_listening_context  # needed with TLS alone

    return {
        "ssl_certfile": settings.tls_cert,
        "ssl_keyfile": settings.tls_key,
        "ssl_context_factory": create_listening_context,
    }


def main() -> None:
    """Serve with the settings of the environment. A PenstockError logs one line and sets the exit code."""
    configure_logging(component="broker")
    try:
        settings = load_settings()
        configure_logging(settings.log_level, settings.log_format, "broker")
        if must_wait():
            if settings.workers == 1:  # several workers import the application themselves
                importlib.import_module(APPLICATION_MODULE)
            wait_for_start()
        serve(settings)
    except PenstockError as error:
        logger.critical(error.detail)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
