"""Run the application on a port until told to stop."""

from __future__ import annotations

import gc
import logging
import os
from typing import Any

import uvicorn
from fastapi import FastAPI

from penstock.api.app import make_app
from penstock.api.http.fast_protocol import FastHttpProtocol
from penstock.broker.self_metrics.worker_slot import clear_slots
from penstock.config import Settings, as_environment, load_settings

GARBAGE_AFTER = 20_000
"""So many objects more than were given up: then those that hold each other are looked for."""

OPTIONS: dict[str, Any] = {
    "http": FastHttpProtocol,
    "access_log": False,
    "proxy_headers": False,
    "server_header": False,
    "date_header": False,
    "timeout_keep_alive": 75,
    "timeout_graceful_shutdown": 10,
}
"""How the server treats its connections."""


def serve(settings: Settings) -> None:
    """Blocks; SIGTERM or SIGINT finishes what is in flight and returns.

    With several workers each is a process of its own, and all share the port; one that dies is replaced.
    They are told their settings through the environment.
    """
    os.environ.update(as_environment(settings))
    clear_slots(settings)
    uvicorn.run(
        "penstock.api.server:make_app_from_environment",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        log_level=settings.log_level,
        **OPTIONS,
    )


def make_app_from_environment() -> FastAPI:
    """The application for the settings in force: what each worker process runs."""
    settings = load_settings()
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    app = make_app(settings)
    # What was made so far stays, and requests leave next to no cycles behind: look for them rarely.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER)
    return app
