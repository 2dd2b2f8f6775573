"""External servers given by URL. Penstock probes them and never starts or stops them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from penstock.config import mask_url
from penstock.embedded.servers.clickhouse import probe_clickhouse
from penstock.embedded.servers.postgres import probe_postgres
from penstock.embedded.servers.valkey import probe_redis
from penstock.embedded.supervision.component import HEALTHY, Component, Health

_SPARK_CONNECT_TIMEOUT_S = 2.0


class ExternalServer(Component):
    """A server given by URL; `setting` is the variable that holds the URL."""

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


def external_postgres(url: str) -> ExternalServer:
    return ExternalServer("postgres", url, "PENSTOCK_POSTGRES_URL", _probe_postgres_url)


def external_redis(url: str) -> ExternalServer:
    return ExternalServer("redis", url, "PENSTOCK_REDIS_URL", probe_redis)


def external_clickhouse(url: str) -> ExternalServer:
    return ExternalServer("clickhouse", url, "PENSTOCK_CLICKHOUSE_URL", probe_clickhouse)


def external_spark(master: str) -> ExternalServer:
    return ExternalServer("spark", master, "PENSTOCK_SPARK_MASTER", _probe_spark_master)


def _probe_postgres_url(url: str) -> Health:
    url_parts = urlsplit(url)
    options = parse_qs(url_parts.query)
    host = url_parts.hostname or options.get("host", ["/var/run/postgresql"])[0]
    port = url_parts.port or int(options.get("port", ["5432"])[0])
    return probe_postgres(host, port, url_parts.username or "postgres")


def _probe_spark_master(master: str) -> Health:
    """Connect to the master's port. A master without an address (`yarn`) always counts as healthy."""
    first = urlsplit(master.removeprefix("k8s://").split(",")[0])
    if not first.hostname or not first.port:
        return HEALTHY
    try:
        socket.create_connection((first.hostname, first.port), _SPARK_CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return Health(False, f"no answer on {first.hostname}:{first.port} ({error.strerror or error})")
    return HEALTHY
