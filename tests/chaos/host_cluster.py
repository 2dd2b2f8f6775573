"""Brokers and alert processes on hosts of a network, with HAProxy in front and their servers behind."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from penstock.config import Settings
from penstock.durable import migrations
from penstock.embedded.servers.data_directory import locate_postgres
from penstock.embedded.servers.ports import LOOPBACK, any_free_port
from penstock.embedded.supervision.component import Program, running, start, wait_until_healthy
from penstock.embedded.supervision.platform import build_environment
from penstock.embedded.supervision.process import Command, stop
from penstock.embedded.supervision.service_components import AlertsService, BrokerService
from tests.chaos.load_balancer import LoadBalancer
from tests.chaos.network_hosts import HostNetwork, NetworkHost, host_network
from tests.unsynced_servers import UnsyncedPostgres, UnsyncedValkey

HOSTS = 3
BROKER_PORT = 7480
ALERT_INTERVAL_S = 1.0
UNREACHABLE_URL = "http://127.0.0.1:1"
SERVER_URLS = ("postgres_url", "redis_url")


class NetworkPostgres(UnsyncedPostgres):
    """A PostgreSQL that hosts of a network reach too."""

    def __init__(self, home: Path, port: int, network: HostNetwork) -> None:
        super().__init__(home, port)
        self._network = network

    def prepare(self) -> str | None:
        note = super().prepare()
        with (locate_postgres(self.home).data / "pg_hba.conf").open("a") as file:
            file.write(f"host all all {self._network.back_network} scram-sha-256\n")
        return note

    def command(self) -> Command:
        command = super().command()
        addresses = f"listen_addresses={LOOPBACK},{self._network.back_gateway}"
        return replace(command, argv=(*command.argv, "-c", addresses))


class NetworkValkey(UnsyncedValkey):
    """A Valkey that hosts of a network reach too."""

    def __init__(self, home: Path, port: int, network: HostNetwork) -> None:
        super().__init__(home, port)
        self._network = network

    def command(self) -> Command:
        command = super().command()
        return replace(command, argv=(*command.argv, "--bind", LOOPBACK, self._network.back_gateway))


class HostBroker(BrokerService):
    """`penstock serve` on a host."""

    def __init__(self, settings: Settings, host: NetworkHost) -> None:
        super().__init__(settings, build_environment(settings))
        self.host = host

    def prepare(self) -> str | None:
        return None  # the port is free: this process has the host for itself

    def command(self) -> Command:
        command = super().command()
        return replace(command, argv=self.host.command(command.argv))


class HostAlerts(AlertsService):
    """`penstock alerts run` on a host."""

    def __init__(self, settings: Settings, host: NetworkHost) -> None:
        super().__init__(settings, build_environment(settings))
        self.host = host

    def command(self) -> Command:
        command = super().command()
        return replace(command, argv=self.host.command(command.argv))


class HostCluster:
    """A running cluster."""

    def __init__(
        self, network: HostNetwork, brokers: Sequence[HostBroker], balancer: LoadBalancer, settings: Settings
    ) -> None:
        self.network = network
        self.brokers = brokers
        self.balancer = balancer
        self.postgres_url = settings.postgres_url
        self.redis_url = settings.redis_url
        self.hosts = network.hosts

    def url_of(self, host: NetworkHost) -> str:
        """The URL of the broker on a host, past HAProxy."""
        return self.brokers[host.number - 1].address


def replace_host(url: str, host: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.replace(LOOPBACK, host)))


@contextmanager
def host_cluster(home: Path) -> Iterator[HostCluster]:
    """Start a broker on each host, and an alert process on the first two. The first one evaluates."""
    with ExitStack() as stack:
        network = stack.enter_context(host_network(HOSTS))
        servers = home / "servers"
        servers.mkdir(mode=0o755)
        postgres = NetworkPostgres(servers, any_free_port(), network)
        valkey = NetworkValkey(servers, any_free_port(), network)
        for server in (postgres, valkey):
            stack.enter_context(running(server))
        local = Settings(
            home=servers,
            postgres_url=postgres.url,
            redis_url=valkey.url,
            clickhouse_url=UNREACHABLE_URL,
            encryption_keys=f"test:{base64.b64encode(bytes(32)).decode()}",
            metrics_enabled=False,
            alert_interval_s=ALERT_INTERVAL_S,
            alert_private_networks=network.back_network,
            insecure=True,
        )
        asyncio.run(_migrate(postgres.url))
        settings = [_settings_of(host, local, home, network) for host in network.hosts]
        brokers = [HostBroker(own, host) for own, host in zip(settings, network.hosts, strict=True)]
        alerts = [HostAlerts(own, host) for own, host in zip(settings[:2], network.hosts[:2], strict=True)]
        addresses = [f"{host.front_address}:{BROKER_PORT}" for host in network.hosts]
        balancer = LoadBalancer(servers, any_free_port(), addresses)
        _start(stack, *brokers, alerts[0], balancer)
        _start(stack, alerts[1])
        yield HostCluster(network, brokers, balancer, local)


def _start(stack: ExitStack, *programs: Program) -> None:
    """Start programs side by side, and stop each of them at the end of the stack."""
    children = []
    for program in programs:
        program.prepare()
        children.append(start(program))
        stack.callback(stop, children[-1], program.stop_timeout_s)
    for program, child in zip(programs, children, strict=True):
        wait_until_healthy(program, child)


async def _migrate(url: str) -> None:
    async with migrations.migration_lock(url) as connection:
        await migrations.apply(connection)


def _settings_of(host: NetworkHost, local: Settings, home: Path, network: HostNetwork) -> Settings:
    host_home = home / host.name
    host_home.mkdir(mode=0o755)
    urls = {name: replace_host(getattr(local, name), network.back_gateway) for name in SERVER_URLS}
    own = {"home": host_home, "host": host.front_address, "port": BROKER_PORT}
    return local.model_copy(update=urls | own)
