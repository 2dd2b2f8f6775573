"""The whole platform from the settings: which parts are run here, which are yours, on which ports."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from penstock.broker.journal.location import journal_directory
from penstock.config import PREFIX, Settings, as_environment
from penstock.embedded.servers.clickhouse import ClickHouse
from penstock.embedded.servers.external import own_clickhouse, own_postgres, own_redis, own_spark
from penstock.embedded.servers.home_secrets import ensure_encryption_keys
from penstock.embedded.servers.ports import choose_port, require_port
from penstock.embedded.servers.postgres import Postgres
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import Component
from penstock.embedded.supervision.one_shot import OneShotTask
from penstock.embedded.supervision.service_components import (
    BrokerService,
    DemoService,
    PipelineService,
    connect_host,
)
from penstock.embedded.supervision.state import read_state
from penstock.errors import ConfigError

_EMBEDDED: dict[str, type[Postgres | Valkey | ClickHouse]] = {
    "postgres_url": Postgres,
    "redis_url": Valkey,
    "clickhouse_url": ClickHouse,
}
Migrate = Callable[[Settings], list[str]]


@dataclass(frozen=True, slots=True)
class Platform:
    """Parts in the order they are shown, and the settings with every address filled in."""

    parts: tuple[Component, ...]
    settings: Settings
    url: str


def build_platform(settings: Settings, migrate: Migrate, demo: bool = False) -> Platform:
    """Choose between embedded and yours part by part. Raises ComponentFailed when the broker's port is taken.

    Embedded servers prefer the three ports after the broker's and take any free one otherwise.
    """
    require_port(settings.port, settings.host)
    servers: list[Component] = []
    addresses: dict[str, str] = {}
    taken = {settings.port}

    def port_after(distance: int) -> int:
        port = choose_port(settings.port + distance, frozenset(taken))
        taken.add(port)
        return port

    if settings.postgres_url:
        servers.append(own_postgres(settings.postgres_url))
    else:
        servers.append(postgres := Postgres(settings.home, port_after(1)))
        addresses["postgres_url"] = postgres.url
        addresses["journal_dir"] = str(journal_directory(settings))
        # Encrypted queues work at once on a database of our own; on yours the key must be yours too.
        addresses["encryption_keys"] = settings.encryption_keys or ensure_encryption_keys(settings.home)
    if settings.redis_url:
        servers.append(own_redis(settings.redis_url))
    else:
        servers.append(valkey := Valkey(settings.home, port_after(2)))
        addresses["redis_url"] = valkey.url
    if settings.clickhouse_url:
        servers.append(own_clickhouse(settings.clickhouse_url))
    else:
        servers.append(clickhouse := ClickHouse(settings.home, port_after(3)))
        addresses["clickhouse_url"] = clickhouse.url
    if settings.spark_master:
        servers.append(own_spark(settings.spark_master))

    resolved = settings.model_copy(update=addresses)
    environment = build_environment(resolved)
    services: list[Component] = [
        OneShotTask("migrations", ("postgres", "clickhouse"), lambda: _words(migrate(resolved))),
        BrokerService(resolved, environment),
        PipelineService(resolved, environment),
    ]
    if demo:
        services.append(DemoService(resolved, environment))
    url = f"http://{connect_host(settings.host)}:{settings.port}"
    return Platform((*servers, *services), resolved, url)


def resolve_server_urls(settings: Settings, *names: str) -> Settings:
    """Fill the named URLs that are not set with those of the platform that runs on this home.

    Raises ConfigError when none runs: a command that needs a server never starts one by itself.
    """
    running = read_state(settings.home)
    found: dict[str, str] = {}
    for name in names:
        if getattr(settings, name):
            continue
        kind = _EMBEDDED[name]
        row = next((row for row in running.parts if row.name == kind.name), None) if running else None
        port = urlsplit(row.address).port if row and not row.yours else None
        if port is None:
            raise ConfigError(
                f"{PREFIX}{name.upper()} is not set and no platform with a server of its own runs on "
                f"{settings.home}: set it, or start one with `penstock up`"
            )
        found[name] = kind(settings.home, port).url
        if name == "postgres_url":
            found["journal_dir"] = str(journal_directory(settings))
    return settings.model_copy(update=found)


def build_environment(settings: Settings) -> dict[str, str]:
    """What a child of the platform is told: the settings, and that this machine is not behind a proxy."""
    bypass = ",".join(
        filter(None, (os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), "127.0.0.1,localhost"))
    )
    return as_environment(settings) | {"NO_PROXY": bypass, "no_proxy": bypass}


def _words(applied: list[str]) -> str:
    return f"{len(applied)} applied" if applied else "nothing to do"
