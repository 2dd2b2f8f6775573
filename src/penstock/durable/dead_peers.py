"""End connections whose other side does not answer any more, such as those of a host that was cut off.

Without this, a lost network looks like a server that thinks: a broker would wait for a minute, and PostgreSQL
would keep the session with its locks for two hours.
"""

from __future__ import annotations

import socket
import sys

import asyncpg

IDLE_S, PROBE_INTERVAL_S, PROBES = 5, 2, 3
"""An idle connection is probed after the first time, and given up after as many probes without an answer."""
CLIENT_TIMEOUT_MS, SERVER_TIMEOUT_MS = 5_000, 10_000
"""How long sent data may stay without an acknowledgement of the other host's kernel, which a busy server's
kernel sends at once. The client gives up first: it knows that its lock is lost before another one gets it."""

_SOCKET_VALUES = {
    "TCP_KEEPIDLE": IDLE_S,
    "TCP_KEEPALIVE": IDLE_S,  # its name on macOS
    "TCP_KEEPINTVL": PROBE_INTERVAL_S,
    "TCP_KEEPCNT": PROBES,
    "TCP_USER_TIMEOUT": CLIENT_TIMEOUT_MS,
}
_SOCKET_OPTIONS = {
    getattr(socket, name): value for name, value in _SOCKET_VALUES.items() if hasattr(socket, name)
}

SESSION_SETTINGS = {
    "tcp_keepalives_idle": str(IDLE_S),
    "tcp_keepalives_interval": str(PROBE_INTERVAL_S),
    "tcp_keepalives_count": str(PROBES),
}
"""Settings of a session with which PostgreSQL ends it when its client is gone."""
if sys.platform == "linux":  # elsewhere, a server on the same machine would log that it lacks this
    SESSION_SETTINGS["tcp_user_timeout"] = str(SERVER_TIMEOUT_MS)


def watch_server(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Let the connection fail a few seconds after the server's host stops answering."""
    transport_socket = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]
    if transport_socket is None or transport_socket.family not in (socket.AF_INET, socket.AF_INET6):
        return
    transport_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _SOCKET_OPTIONS.items():
        transport_socket.setsockopt(socket.IPPROTO_TCP, option, value)
