"""Run the application on a port until it is stopped."""

from __future__ import annotations

import gc
import logging
import os
from typing import Any

import uvicorn
from fastapi import FastAPI

from penstock.api.app import create_app
from penstock.api.http.fast_protocol import FastHttpProtocol
from penstock.broker.self_metrics.worker_slot import clear_stale_slots
from penstock.config import Settings, as_environment, load_settings

GC_THRESHOLD = 20_000
"""Run the cyclic garbage collector after so many more allocations than deallocations."""

SERVER_OPTIONS: dict[str, Any] = {
    "http": FastHttpProtocol,
    "ws": "none",
    "access_log": False,
    "proxy_headers": False,
    "server_header": False,
    "date_header": False,
    "timeout_keep_alive": 75,
    "timeout_graceful_shutdown": 10,
}
"""Options of uvicorn for connections and headers."""


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, finish the requests in flight, and return.

    Each of several workers is a process of its own, and all share the port; a worker that dies is replaced.
    Workers receive their settings through the environment.
    """
    os.environ.update(as_environment(settings))
    clear_stale_slots(settings)
    uvicorn.run(
        "penstock.api.server:create_app_from_environment",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        log_level=settings.log_level,
        **SERVER_OPTIONS,
    )


def create_app_from_environment() -> FastAPI:
    """The application of one worker process, with the settings of its environment."""
    settings = load_settings()
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    app = create_app(settings)
    # The objects created so far stay, and requests create next to no reference cycles: collect rarely.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    return app
