"""Connect to the primary among the servers that a URL names, and never to a server that it has replaced.

A URL may name several hosts: `postgresql://user:password@db1:5432,db2:5432/penstock`. Every connection
needs a server that takes writes, whatever `target_session_attrs` says: the broker writes on all of them.

A standby that is promoted starts a new timeline. Once this process has used it, a server on an older one is
the former primary, which was started again without becoming a standby: writes there would be lost.

Both sides of every connection notice within seconds when the other host is cut off.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from penstock.durable.dead_peers import SESSION_SETTINGS, watch_server

TIMELINE_QUERY = """
    SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()),
           ('x' || left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8))::bit(32)::int
"""

PrimaryConnection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

SERVER_ERRORS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Why one of several hosts cannot be used. The next one is tried."""


class FormerPrimary(asyncpg.InternalClientError):
    """The server is on an older timeline than one that this process has used."""


@dataclass(slots=True)
class ServerHistory:
    """The newest timeline of each database cluster that this process has connected to, by its identifier."""

    timelines: dict[int, int] = field(default_factory=dict)

    def record(self, system_identifier: int, timeline: int) -> None:
        """Record on which timeline a server is. Raises FormerPrimary if there is a newer one."""
        newest = self.timelines.get(system_identifier, timeline)
        if timeline < newest:
            raise FormerPrimary(
                f"the server is on timeline {timeline}, but a standby was promoted to timeline {newest}; "
                "make the former primary a standby. After a restore of older files, restart the broker"
            )
        self.timelines[system_identifier] = timeline


class HostList:
    """The hosts of a URL, of which the last one that could be used is tried first."""

    def __init__(self, url: str) -> None:
        self.urls = split_hosts(url)
        self._preferred = 0

    def in_order(self) -> list[str]:
        return self.urls[self._preferred :] + self.urls[: self._preferred]

    def prefer(self, url: str) -> None:
        self._preferred = self.urls.index(url)


_history = ServerHistory()
_hosts = cache(HostList)


def split_hosts(url: str) -> list[str]:
    """Return one URL per host; a URL with one host, or with hosts among its parameters, as it is."""
    match = re.fullmatch(r"([^:/?#]+://(?:[^/?#]*@)?)([^/?#@]*)(.*)", url)
    if match is None:
        return [url]
    start, hosts, rest = match.groups()
    return [f"{start}{host}{rest}" for host in hosts.split(",")]


async def connect_to_primary(
    url: str,
    *,
    timeout: float,
    history: ServerHistory = _history,
    on_timeline: Callable[[int, int], None] = lambda system_identifier, timeline: None,
    **options: Any,
) -> PrimaryConnection:
    """Return a connection to the first host that takes writes, within `timeout` seconds.

    A host that hangs gets its share of the time, so that it does not keep the others from being tried.
    `on_timeline` is called with the identifier and the timeline of the server. Raises the driver's errors.
    """
    hosts = _hosts(url)
    deadline = time.monotonic() + timeout
    errors: list[Exception] = []
    for number, host_url in enumerate(ordered := hosts.in_order()):
        share_s = max((deadline - time.monotonic()) / (len(ordered) - number), 0.05)
        try:
            connection = await _connect(host_url, share_s, history, on_timeline, options)
        except SERVER_ERRORS as error:
            errors.append(error)
            continue
        hosts.prefer(host_url)
        return connection
    raise next((error for error in errors if not isinstance(error, OSError)), errors[-1])


async def _connect(
    url: str,
    timeout: float,
    history: ServerHistory,
    on_timeline: Callable[[int, int], None],
    options: dict[str, Any],
) -> PrimaryConnection:
    options["server_settings"] = SESSION_SETTINGS | options.get("server_settings", {})
    connection: PrimaryConnection = await asyncpg.connect(
        url, timeout=timeout, target_session_attrs=SessionAttribute.read_write, **options
    )
    try:
        watch_server(connection)
        try:
            row = await connection.fetchrow(TIMELINE_QUERY, timeout=timeout)
        except (asyncpg.InsufficientPrivilegeError, asyncpg.FeatureNotSupportedError):
            return connection  # a managed service that hides its log has to fence former primaries by itself
        assert row is not None
        history.record(*row)
        on_timeline(*row)
    except BaseException:
        connection.terminate()
        raise
    return connection


def is_read_only(connection: PrimaryConnection) -> bool:
    """Return whether the server has told this open connection that it takes no writes any more."""
    settings = connection.get_settings()
    return "on" in (
        getattr(settings, "default_transaction_read_only", "off"),
        getattr(settings, "in_hot_standby", "off"),
    )
