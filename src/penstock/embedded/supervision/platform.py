"""Build the platform from the settings: which components run here, which are external, and on which ports."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from penstock.broker.journal.push_journal import journal_directory
from penstock.config import PREFIX, Settings, as_environment
from penstock.embedded.servers.clickhouse import ClickHouse
from penstock.embedded.servers.external import (
    external_clickhouse,
    external_postgres,
    external_redis,
    external_spark,
)
from penstock.embedded.servers.home_secrets import ensure_encryption_keys
from penstock.embedded.servers.ports import choose_port, require_port
from penstock.embedded.servers.postgres import Postgres
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import Component
from penstock.embedded.supervision.migration_run import run_migrations
from penstock.embedded.supervision.one_shot import OneShotTask
from penstock.embedded.supervision.service_components import (
    AlertsService,
    BrokerService,
    DemoService,
    PipelineService,
)
from penstock.embedded.supervision.state import PlatformState, read_state
from penstock.errors import ConfigError
from penstock.listen_address import local_url

_EMBEDDED_SERVERS: dict[str, type[Postgres | Valkey | ClickHouse]] = {
    "postgres_url": Postgres,
    "redis_url": Valkey,
    "clickhouse_url": ClickHouse,
}


@dataclass(frozen=True, slots=True)
class Platform:
    """The components in display order, and the settings with every address filled in."""

    components: tuple[Component, ...]
    settings: Settings
    url: str


def build_platform(settings: Settings, demo: bool = False) -> Platform:
    """Choose an embedded or an external server for each role.

    Embedded servers prefer the three ports after the broker's and take any free port otherwise. Raises
    ComponentFailed when the broker's port is taken.
    """
    require_port(settings.port, settings.host)
    servers: list[Component] = []
    addresses: dict[str, str] = {}
    chosen_ports = {settings.port}

    def choose_port_after(distance: int) -> int:
        port = choose_port(settings.port + distance, frozenset(chosen_ports))
        chosen_ports.add(port)
        return port

    if settings.postgres_url:
        servers.append(external_postgres(settings.postgres_url))
    else:
        servers.append(postgres := Postgres(settings.home, choose_port_after(1)))
        addresses["postgres_url"] = postgres.url
        addresses["journal_dir"] = str(journal_directory(settings))
        # Encrypted queues work at once on the embedded database. On an external one the operator sets the
        # keys.
        addresses["encryption_keys"] = settings.encryption_keys or ensure_encryption_keys(settings.home)
    if settings.redis_url:
        servers.append(external_redis(settings.redis_url))
    else:
        servers.append(valkey := Valkey(settings.home, choose_port_after(2)))
        addresses["redis_url"] = valkey.url
    if settings.clickhouse_url:
        servers.append(external_clickhouse(settings.clickhouse_url))
    else:
        servers.append(clickhouse := ClickHouse(settings.home, choose_port_after(3)))
        addresses["clickhouse_url"] = clickhouse.url
    if settings.spark_master:
        servers.append(external_spark(settings.spark_master))

    # `penstock up` stops all components together, so its broker need not wait until traffic has moved away.
    resolved = settings.model_copy(update={**addresses, "drain_s": 0.0})
    environment = build_environment(resolved)
    services: list[Component] = [
        OneShotTask(
            "migrations", ("postgres", "clickhouse"), partial(run_migrations, settings.home, environment)
        ),
        BrokerService(resolved, environment),
        PipelineService(resolved, environment),
        AlertsService(resolved, environment),
    ]
    if demo:
        services.append(DemoService(resolved, environment))
    return Platform((*servers, *services), resolved, local_url(settings))


def resolve_server_urls(settings: Settings, *names: str) -> Settings:
    """Fill the named URL settings that are empty with the addresses of the platform that runs on this home.

    With the address of its PostgreSQL comes the key of what is encrypted there.
    Raises ConfigError when none runs: a command that needs a server never starts one.
    """
    running = read_state(settings.home)
    urls: dict[str, str] = {}
    for name in names:
        if getattr(settings, name):
            continue
        server = _EMBEDDED_SERVERS[name]
        component = running.find_component(server.name) if running else None
        port = urlsplit(component.address).port if component and not component.is_external else None
        if port is None:
            raise ConfigError(_describe_missing_url(name, settings, running))
        urls[name] = server(settings.home, port).url
        if name == "postgres_url":
            urls["journal_dir"] = str(journal_directory(settings))
            urls["encryption_keys"] = settings.encryption_keys or ensure_encryption_keys(settings.home)
    return settings.model_copy(update=urls)


def _describe_missing_url(name: str, settings: Settings, running: PlatformState | None) -> str:
    variable = f"{PREFIX}{name.upper()}"
    server = {"postgres_url": "PostgreSQL", "redis_url": "Redis", "clickhouse_url": "ClickHouse"}[name]
    if running is None:
        return (
            f"{variable} is not set, and Penstock does not run on {settings.home}. Set it to the URL of your "
            f"{server}, or start Penstock with `penstock up`."
        )
    address = running.settings.get(name)
    return (
        f"{variable} is not set. The platform on {settings.home} uses your {server}"
        f"{f' at {address}' if address else ''}: set {variable} to its URL here too."
    )


def build_environment(settings: Settings) -> dict[str, str]:
    """Return the environment of a child process: the settings, and no proxy for this machine."""
    no_proxy = ",".join(
        filter(None, (os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), "127.0.0.1,localhost"))
    )
    return as_environment(settings) | {"NO_PROXY": no_proxy, "no_proxy": no_proxy}
