"""Choosing loopback ports, and saying who holds one that is taken."""

from __future__ import annotations

import socket

import psutil

from penstock.errors import ComponentFailed

LOOPBACK = "127.0.0.1"


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether a server could listen on this port now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def any_free_port(avoid: frozenset[int] = frozenset()) -> int:
    """A port nobody listens on now, outside `avoid`. Another process may still take it first."""
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((LOOPBACK, 0))
            port = int(probe.getsockname()[1])
        if port not in avoid:
            return port


def choose_port(preferred: int, avoid: frozenset[int] = frozenset()) -> int:
    """The preferred port when it is free, otherwise any free one."""
    if preferred not in avoid and preferred <= 65535 and is_free(preferred):
        return preferred
    return any_free_port(avoid)


def require_port(port: int, host: str = LOOPBACK) -> None:
    """Raises ComponentFailed naming the holder, as far as it is known, when the port is taken."""
    if is_free(port, host):
        return
    holder = holder_of(port)
    by = f" by {holder}" if holder else ""
    raise ComponentFailed(
        f"port {port} is already taken{by}: stop that program, or choose another port "
        f"with PENSTOCK_PORT (for example PENSTOCK_PORT={min(port + 10, 65535)} penstock up)"
    )


def holder_of(port: int) -> str | None:
    """Name and pid of the process that listens on the port, or None when the system does not tell."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.Error:
        return None
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            if connection.pid is None:
                return None
            try:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
            except psutil.Error:
                return f"pid {connection.pid}"
    return None
