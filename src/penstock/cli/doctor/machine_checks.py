"""Checks of the machine and of what runs on it: Python, home, disk, memory, components, broker."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from penstock import __version__
from penstock.cli.broker_address import find_broker
from penstock.cli.doctor.findings import CheckFinding, Installation, ok, problem, warning
from penstock.cli.platform_info import read_health
from penstock.embedded.servers.ports import require_port
from penstock.embedded.supervision.state import RunState

GIBIBYTE = 2**30
MIN_PYTHON = (3, 11)
DISK_WARNING_BYTES, DISK_PROBLEM_BYTES = 5 * GIBIBYTE, GIBIBYTE
MEMORY_WARNING_BYTES, MEMORY_PROBLEM_BYTES = GIBIBYTE, GIBIBYTE // 4


def check_versions(installation: Installation) -> Iterator[CheckFinding]:
    python = platform.python_version()
    if sys.version_info < MIN_PYTHON:
        yield problem("versions", f"Python {python} is too old. Install Penstock with Python 3.11 or newer.")
    else:
        yield ok(
            "versions", f"Penstock {__version__}, Python {python}, {platform.system()} {platform.machine()}."
        )


def check_platform(installation: Installation) -> Iterator[CheckFinding]:
    """Say which components of the platform on the home do not run."""
    state = installation.running
    if state is None:
        yield ok("platform", f"Stopped: nothing runs on {installation.home}. `penstock up` starts it.")
        return
    down = [component for component in state.components if component.state is not RunState.UP]
    for component in down:
        reason = f" ({component.last_failure})" if component.last_failure else ""
        yield problem(
            "platform",
            f"{component.name} is {component.state}{reason}. `penstock logs {component.name}` says why.",
        )
    for component in state.components:
        if component.restarts and component.state is RunState.UP:
            times = "once" if component.restarts == 1 else f"{component.restarts} times"
            text = f"{component.name} was restarted {times}: {component.last_failure or 'see its log'}."
            yield warning("platform", text)
    if not down:
        yield ok("platform", f"All {len(state.components)} components run at {state.url}.")


def check_home(installation: Installation) -> Iterator[CheckFinding]:
    directory = _existing_parent(installation.home)
    if not os.access(directory, os.W_OK):
        yield problem(
            "home", f"{directory} cannot be written. Choose another PENSTOCK_HOME, or change its owner."
        )
    else:
        yield ok("home", f"{installation.home} can be written.")


def check_disk(installation: Installation) -> Iterator[CheckFinding]:
    directory = _existing_parent(installation.home)
    free = shutil.disk_usage(directory).free
    text = f"{free / GIBIBYTE:,.1f} GiB are free on the disk of {directory}."
    if free < DISK_PROBLEM_BYTES:
        yield problem("disk", f"{text} Free some now: PostgreSQL stops when the disk is full.")
    elif free < DISK_WARNING_BYTES:
        yield warning("disk", f"{text} Make room, or shorten retention.")
    else:
        yield ok("disk", text)


def check_memory(installation: Installation) -> Iterator[CheckFinding]:
    available = psutil.virtual_memory().available
    text = f"{available / GIBIBYTE:,.1f} GiB of memory are available."
    if available < MEMORY_PROBLEM_BYTES:
        yield problem("memory", f"{text} Spark and PostgreSQL may be killed. Stop other programs.")
    elif available < MEMORY_WARNING_BYTES and installation.running is None:
        yield warning("memory", f"{text} The whole platform needs about 1 GiB.")
    else:
        yield ok("memory", text)


def check_broker(installation: Installation) -> Iterator[CheckFinding]:
    """Say how the broker feels; if none answers, whether one could listen on its port."""
    settings, running = installation.settings, installation.running
    address = find_broker(settings, None)
    health = read_health(address)
    if health is None and running is not None:
        yield problem("broker", f"No broker answers at {address.url}. `penstock logs broker` says why.")
    elif health is None:
        require_port(settings.port, settings.host)
        yield ok("broker", f"No broker runs; port {settings.port} is free for it.")
    else:
        yield from (problem("broker", reason) for reason in health["reasons"])
        if not health["reasons"]:
            yield ok("broker", f"The broker at {address.url} is healthy.")


def _existing_parent(path: Path) -> Path:
    return next(parent for parent in (path, *path.parents) if parent.exists())
