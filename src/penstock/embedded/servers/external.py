"""External servers: an operator runs them, a URL names them, and Penstock only probes them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from penstock.config import mask_url
from penstock.durable.postgres_probe import PostgresProbe
from penstock.embedded.servers.redis_probe import RedisProbe
from penstock.embedded.servers.server_probe import ServerProbe, ping_external
from penstock.embedded.supervision.component import HEALTHY, Component, Health
from penstock.supported_servers import CLICKHOUSE, POSTGRES, REDIS

_SPARK_CONNECT_TIMEOUT_S = 2.0


class ExternalServer(Component):
    """A server given by URL; `setting` is the variable that holds the URL."""

    def __init__(
        self,
        name: str,
        url: str,
        setting: str,
        probe: Callable[[], Health],
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.url = url
        self.setting = setting
        self.required = name != "spark"
        self._probe = probe
        self._close = close

    @property
    def address(self) -> str:
        return mask_url(self.url)

    def probe(self) -> Health:
        return self._probe()

    def close(self) -> None:
        self._close()


def external_postgres(url: str) -> ExternalServer:
    return _external_server("postgres", url, POSTGRES.setting, PostgresProbe(url))


def external_redis(url: str) -> ExternalServer:
    return _external_server("redis", url, REDIS.setting, RedisProbe(url))


def external_clickhouse(url: str) -> ExternalServer:
    # The driver and numpy take 20 MB and half a second, which a platform with embedded servers does not need.
    from penstock.warehouse.clickhouse_probe import ClickHouseProbe

    return _external_server("clickhouse", url, CLICKHOUSE.setting, ClickHouseProbe(url))


def external_spark(master: str) -> ExternalServer:
    return ExternalServer("spark", master, "PENSTOCK_SPARK_MASTER", lambda: _probe_spark_master(master))


def _external_server(name: str, url: str, setting: str, probe: ServerProbe) -> ExternalServer:
    return ExternalServer(name, url, setting, lambda: ping_external(probe), probe.close)


def _probe_spark_master(master: str) -> Health:
    """Connect to the master's port. A master without an address (`yarn`) always counts as healthy."""
    first = urlsplit(master.removeprefix("k8s://").split(",")[0])
    if not first.hostname or not first.port:
        return HEALTHY
    try:
        socket.create_connection((first.hostname, first.port), _SPARK_CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return Health(
            False,
            f"PENSTOCK_SPARK_MASTER: no connection to {first.hostname}:{first.port} "
            f"({error.strerror or error}). Start the master, or correct the URL.",
        )
    return HEALTHY
