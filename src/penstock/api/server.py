"""Run the application on a port until told to stop."""

from __future__ import annotations

import logging

import uvicorn

from penstock.api.app import make_app
from penstock.config import Settings


def serve(settings: Settings) -> None:
    """Blocks; SIGTERM or SIGINT finishes what is in flight and returns."""
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    uvicorn.run(
        make_app(settings),
        host=settings.host,
        port=settings.port,
        log_level=settings.log_level,
        access_log=False,
        timeout_graceful_shutdown=10,
    )
