"""Choose loopback ports, and name the process that holds a port."""

from __future__ import annotations

import socket

import psutil

from penstock.errors import ComponentFailed

LOOPBACK = "127.0.0.1"
MAX_PORT = 65535


def is_port_free(port: int, host: str = LOOPBACK) -> bool:
    """Return whether a server could listen on this port now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError:
            return False
        return True


def any_free_port(avoid: frozenset[int] = frozenset()) -> int:
    """Return a port outside `avoid` that is free now. Another process may still take it first."""
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.bind((LOOPBACK, 0))
            port = int(listener.getsockname()[1])
        if port not in avoid:
            return port


def choose_port(preferred: int, avoid: frozenset[int] = frozenset()) -> int:
    """Return the preferred port when it is free, otherwise any free one."""
    if preferred not in avoid and preferred <= MAX_PORT and is_port_free(preferred):
        return preferred
    return any_free_port(avoid)


def require_port(port: int, host: str = LOOPBACK) -> None:
    """Raise ComponentFailed when the port is taken; the error names the process that holds it, if known."""
    if is_port_free(port, host):
        return
    holder = find_port_holder(port)
    held_by = f" by {holder}" if holder else ""
    raise ComponentFailed(
        f"Port {port} is already in use{held_by}. Stop that program, or choose another port with "
        f"PENSTOCK_PORT (for example PENSTOCK_PORT={min(port + 10, MAX_PORT)} penstock up)."
    )


def find_port_holder(port: int) -> str | None:
    """Return name and pid of the process that listens on the port, or None when the system hides it."""
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
