"""The interface of the probes of PostgreSQL, Redis and ClickHouse, and the health that a probe reports."""

from __future__ import annotations

from typing import Protocol

from penstock.embedded.supervision.component import HEALTHY, Health
from penstock.errors import ServerStarting, ServerUnusable


class ServerProbe(Protocol):
    """Logs in to a server with its driver. `check` and `ping` raise ServerUnusable."""

    def check(self) -> str | None:
        """Check URL, version and rights; return a warning, if any."""

    def ping(self) -> None:
        """Ask one question over a connection that is kept."""

    def close(self) -> None:
        """Close the connection, if any."""


def ping_embedded(probe: ServerProbe) -> Health:
    """Ping an embedded server. The reason names no setting, because none has its URL."""
    try:
        probe.ping()
    except ServerUnusable as error:
        return Health(False, error.problem, busy=isinstance(error, ServerStarting))
    return HEALTHY


def ping_external(probe: ServerProbe) -> Health:
    """Ping a server of the operator. The reason names the setting and says what to do."""
    try:
        probe.ping()
    except ServerUnusable as error:
        return Health(False, error.detail)
    return HEALTHY
