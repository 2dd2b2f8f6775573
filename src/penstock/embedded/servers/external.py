"""Parts that are somebody's own servers: never started or stopped here, only asked whether they work."""

from __future__ import annotations

import socket
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from penstock.config import mask_url
from penstock.embedded.servers.clickhouse import probe_clickhouse
from penstock.embedded.servers.postgres import probe_postgres
from penstock.embedded.servers.valkey import probe_redis
from penstock.embedded.supervision.component import HEALTHY, Component, Health


class ExternalServer(Component):
    """A server given by URL; `setting` is the variable the URL came from."""

    def __init__(self, name: str, url: str, setting: str, probe: Callable[[str], Health]) -> None:
        self.name = name
        self.url = url
        self.setting = setting
        self.required = name != "spark"
        self._probe = probe

    @property
    def address(self) -> str:
        return mask_url(self.url)

    def probe(self) -> Health:
        return self._probe(self.url)


def own_postgres(url: str) -> ExternalServer:
    return ExternalServer("postgres", url, "PENSTOCK_POSTGRES_URL", _postgres)


def own_redis(url: str) -> ExternalServer:
    return ExternalServer("valkey", url, "PENSTOCK_REDIS_URL", probe_redis)


def own_clickhouse(url: str) -> ExternalServer:
    return ExternalServer("clickhouse", url, "PENSTOCK_CLICKHOUSE_URL", probe_clickhouse)


def own_spark(master: str) -> ExternalServer:
    return ExternalServer("spark", master, "PENSTOCK_SPARK_MASTER", _spark)


def _postgres(url: str) -> Health:
    parts = urlsplit(url)
    asked = parse_qs(parts.query)
    host = parts.hostname or asked.get("host", ["/var/run/postgresql"])[0]
    return probe_postgres(
        host, parts.port or int(asked.get("port", ["5432"])[0]), parts.username or "postgres"
    )


def _spark(master: str) -> Health:
    """Reach the master's port. A master without one (`yarn`) cannot be asked and counts as there."""
    first = urlsplit(master.removeprefix("k8s://").split(",")[0])
    if not first.hostname or not first.port:
        return HEALTHY
    try:
        socket.create_connection((first.hostname, first.port), 2.0).close()
    except OSError as error:
        return Health(False, f"no answer on {first.hostname}:{first.port} ({error.strerror or error})")
    return HEALTHY
