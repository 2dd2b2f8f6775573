"""Keep serving for a while after SIGTERM, so that load balancers notice before connections are refused."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

logger = logging.getLogger(__name__)


@contextmanager
def draining_on_sigterm(drain_s: float, on_drain: Callable[[], None]) -> Iterator[None]:
    """On SIGTERM, call `on_drain` and pass the signal to the server's handler `drain_s` later.

    A second SIGTERM is passed on at once. Without a server that handles SIGTERM in this thread, or with a
    `drain_s` of 0, this changes nothing.
    """
    server_handler = signal.getsignal(signal.SIGTERM)
    is_main_thread = threading.current_thread() is threading.main_thread()
    if not drain_s or not is_main_thread or not callable(server_handler):
        yield
        return
    loop = asyncio.get_running_loop()
    is_draining = False

    def start_drain(signum: int) -> None:
        logger.info("Draining for %g s: /health/ready responds with 503", drain_s)
        on_drain()
        loop.call_later(drain_s, server_handler, signum, None)

    def handle_signal(signum: int, frame: FrameType | None) -> None:
        nonlocal is_draining
        if is_draining:
            server_handler(signum, frame)
            return
        is_draining = True
        loop.call_soon_threadsafe(start_drain, signum)

    signal.signal(signal.SIGTERM, handle_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, server_handler)
