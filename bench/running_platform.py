"""Run `penstock up` in a child process, and measure how fast it starts."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.supervision.state import PlatformState, read_state

START_TIMEOUT_S = 300.0
POLL_INTERVAL_S = 0.05
PUSH_BODY = b'{"items":[{"queue":"rest","payload":{}}]}'


class Start(NamedTuple):
    """A platform that has started: how long that took, its processes and the port of its broker."""

    first_push_s: float
    healthy_s: float
    state: PlatformState
    port: int


@contextmanager
def run_platform(home: Path, settings: Mapping[str, str] | None = None) -> Iterator[Start]:
    """Run `penstock up` on a home: yield when all components are up, stop it at the end.

    `settings` are further variables of its environment.
    """
    port = any_free_port()
    environment = os.environ | {"PENSTOCK_HOME": str(home), "PENSTOCK_PORT": str(port), **(settings or {})}
    log = home / "up.log"
    started_at = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.main", "up"], env=environment, stdout=output, stderr=output
        )
    try:
        first_push_s = _wait_until(lambda: _push(port), process, log) - started_at
        healthy_s = _wait_until(lambda: _is_healthy(home), process, log) - started_at
        yield Start(first_push_s, healthy_s, read_running_state(home), port)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(START_TIMEOUT_S)


def _wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> float:
    """Return when the condition holds. Raises RuntimeError when the platform ends or does not get there."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"The platform did not start:\n{log.read_text()}")
        time.sleep(POLL_INTERVAL_S)
    return time.monotonic()


def _push(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("POST", "/api/v1/push", PUSH_BODY, {"Content-Type": "application/json"})
        return connection.getresponse().status < 300
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _is_healthy(home: Path) -> bool:
    state = read_state(home)
    return state is not None and state.all_up


def read_running_state(home: Path) -> PlatformState:
    """Return the state of the platform that runs on a home. Raises RuntimeError if none does."""
    state = read_state(home)
    if state is None:
        raise RuntimeError(f"No platform runs on {home}.")
    return state
