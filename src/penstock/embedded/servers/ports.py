"""Choose loopback ports, and explain why a port cannot be used: who holds it, or who may listen on it."""

from __future__ import annotations

import errno
import random
import shlex
import socket
import sys
from collections import deque
from pathlib import Path

import psutil

from penstock.embedded.supervision.process import command_words
from penstock.errors import ComponentFailed

LOOPBACK = "127.0.0.1"
FREE_PORTS = range(20_000, 32_768)
"""Below the ports of outgoing connections, which could take a chosen port before its server starts."""
MAX_ATTEMPTS = 100
MAX_RESERVATIONS = 100
MAX_PORT = 65535
MAX_COMMAND_LENGTH = 80
BROKER_MODULE = "penstock.api.server"
"""The module that a broker process runs."""

_reservations: deque[socket.socket] = deque()
"""Sockets on the ports that this process chose last."""


def is_port_free(port: int, host: str = LOOPBACK) -> bool:
    """Return whether a server could listen on this port now."""
    return try_to_bind(port, host) is None


def try_to_bind(port: int, host: str) -> OSError | None:
    """Return the error that a server would get on this port, or None if it could listen."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            return error
        return None


def first_unprivileged_port() -> int:
    """Return the lowest port that every user may listen on."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    except OSError:  # not Linux
        return 1024


def any_free_port(avoid: frozenset[int] = frozenset()) -> int:
    """Return a port outside `avoid` that is free now. On Linux, no other process chooses it meanwhile."""
    system_random = random.SystemRandom()  # processes that share a seed must not choose the same ports
    for _ in range(MAX_ATTEMPTS):
        port = system_random.choice(FREE_PORTS)
        if port not in avoid and _reserve(port):
            return port
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.bind((LOOPBACK, 0))
            port = int(listener.getsockname()[1])
        if port not in avoid:
            return port


def _reserve(port: int) -> bool:
    """Keep other processes from choosing this port; return False if it is in use or reserved.

    The socket that stays bound does not listen and allows others to use its address, so a server can listen
    there. `any_free_port` allows no other and fails to bind. Other systems than Linux refuse the server too.
    """
    if sys.platform != "linux":
        return is_port_free(port)
    reservation = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        reservation.bind((LOOPBACK, port))
    except OSError:
        reservation.close()
        return False
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _reservations.append(reservation)
    if len(_reservations) > MAX_RESERVATIONS:
        _reservations.popleft().close()
    return True


def choose_port(preferred: int, avoid: frozenset[int] = frozenset()) -> int:
    """Return the preferred port when any user can listen on it now, otherwise any free one.

    Started by root, PostgreSQL runs as another user.
    """
    is_valid = first_unprivileged_port() <= preferred <= MAX_PORT and preferred not in avoid
    return preferred if is_valid and is_port_free(preferred) else any_free_port(avoid)


def require_port(port: int, host: str = LOOPBACK, command: str = "up") -> None:
    """Raise ComponentFailed when the broker cannot listen on its port; the error says why and what to do.

    `command` is the command of `penstock` that the error shows with another port.
    """
    error = try_to_bind(port, host)
    if error is None:
        return
    match error.errno:
        case errno.EACCES:
            lowest = first_unprivileged_port()
            raise ComponentFailed(
                f"Port {port} needs root, like every port below {lowest}. Choose a port from {lowest} up, "
                f"for example PENSTOCK_PORT={max(7777, lowest)} penstock {command}."
            )
        case errno.EADDRINUSE:
            raise ComponentFailed(
                f"Port {port} is already in use by {describe_port_holder(port)}. Stop it, or choose another "
                f"port, for example PENSTOCK_PORT={min(port + 10, MAX_PORT)} penstock {command}."
            )
        case _:
            raise ComponentFailed(
                f"The broker cannot listen on {host} ({error.strerror or error}). Set PENSTOCK_HOST to an "
                "address of this machine."
            )


def require_server_port(name: str, port: int) -> None:
    """Raise ComponentFailed when the port of an embedded server was taken while the server was down."""
    if not is_port_free(port):
        raise ComponentFailed(
            f"Port {port} of {name} is in use by {describe_port_holder(port)}. Stop it, or start `penstock "
            "up` again: it then chooses another port."
        )


def describe_port_holder(port: int) -> str:
    """Describe the process that listens on the port: its pid and command, or the home of a Penstock."""
    try:
        listener = _find_listener(port)
        if listener is not None:
            return _describe_process(listener)
    except psutil.Error:  # it has ended, or the system hides it
        pass
    return f"a program of another user (`sudo ss -ltnp 'sport = :{port}'` names it)"


def _describe_process(process: psutil.Process) -> str:
    for broker in (process, *process.parents()):  # a worker process is a child of its broker
        if BROKER_MODULE in command_words(broker):
            # A broker that a supervisor forked shows the environment of the supervisor; it works in its home.
            home = broker.environ().get("PENSTOCK_HOME") or broker.cwd()
            return f"the Penstock with the home {home} (pid {broker.pid})"
    command = shlex.join(process.cmdline()) or process.name()
    if len(command) > MAX_COMMAND_LENGTH:
        command = f"{command[:MAX_COMMAND_LENGTH]}…"
    return f"pid {process.pid} ({command})"


def _find_listener(port: int) -> psutil.Process | None:
    """Return a process that listens on the port, or None: the system hides processes of other users."""
    for connection in psutil.net_connections(kind="tcp"):
        if connection.status != psutil.CONN_LISTEN or not connection.laddr or connection.pid is None:
            continue
        if connection.laddr.port == port:
            return psutil.Process(connection.pid)
    return None
