"""Run a supervised platform on fixed ports: `python -m chaos.platform_process LAYOUT.json`.

It has the components of `penstock up`, except that they reach PostgreSQL, Valkey and ClickHouse through
proxies. Without the pipeline it has no Spark, no ClickHouse and no alerts, and starts in a few seconds.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import msgspec

from penstock.broker.journal.push_journal import journal_directory
from penstock.broker.store_migrations import migrate
from penstock.config import Settings
from penstock.embedded.servers.clickhouse import ClickHouse
from penstock.embedded.servers.home_secrets import ensure_encryption_keys
from penstock.embedded.servers.postgres import Postgres
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import Component, Program
from penstock.embedded.supervision.one_shot import OneShotTask
from penstock.embedded.supervision.platform import build_environment
from penstock.embedded.supervision.process import Command
from penstock.embedded.supervision.service_components import AlertsService, BrokerService, PipelineService
from penstock.embedded.supervision.supervisor import HomeLock, Supervisor, stop_orphans

BROKER_WORKERS = 2
ALERT_INTERVAL_S = 2.0
UNREACHABLE_URL = "http://127.0.0.1:9"
"""The ClickHouse URL of a platform without one."""


class PlatformLayout(msgspec.Struct, frozen=True):
    """The home and the ports of a platform. A restarted platform has the same ones."""

    home: str
    ports: dict[str, int]
    """Ports of the broker and the servers."""
    proxy_ports: dict[str, int]
    """Ports of the proxies in front of the servers."""
    pipeline: bool
    environments: dict[str, dict[str, str]]
    """Further variables of components."""


def build_settings(layout: PlatformLayout) -> Settings:
    """Return the settings of all parts, with the addresses of the proxies."""
    home = Path(layout.home)
    clickhouse_url = ClickHouse(home, layout.ports["clickhouse"]).url
    settings = Settings(
        home=home,
        port=layout.ports["broker"],
        workers=BROKER_WORKERS,
        postgres_url=replace_port(
            Postgres(home, layout.ports["postgres"]).url, layout.proxy_ports["postgres"]
        ),
        redis_url=replace_port(Valkey(home, layout.ports["valkey"]).url, layout.proxy_ports["valkey"]),
        clickhouse_url=replace_port(clickhouse_url, layout.proxy_ports["clickhouse"])
        if layout.pipeline
        else UNREACHABLE_URL,
        encryption_keys=ensure_encryption_keys(home),
        alert_interval_s=ALERT_INTERVAL_S,
        alert_private_networks="127.0.0.0/8",
        drain_s=0.0,
    )
    return settings.model_copy(update={"journal_dir": str(journal_directory(settings))})


def build_components(layout: PlatformLayout) -> list[Component]:
    home = Path(layout.home)
    postgres, valkey = Postgres(home, layout.ports["postgres"]), Valkey(home, layout.ports["valkey"])
    clickhouse = ClickHouse(home, layout.ports["clickhouse"]) if layout.pipeline else None
    settings = build_settings(layout)
    migrated = settings.model_copy(
        update={"postgres_url": postgres.url, "clickhouse_url": clickhouse.url if clickhouse else ""}
    )
    migrations = OneShotTask(
        "migrations",
        ("postgres", "clickhouse"),
        lambda: f"{len(asyncio.run(migrate(migrated)))} applied",
    )
    components: list[Component] = [postgres, valkey]
    if clickhouse:
        components.append(clickhouse)
    environment = build_environment(settings)
    broker = BrokerService(settings, environment)
    for program in (postgres, valkey, broker):
        add_environment(program, layout.environments.get(program.name, {}))
    components += [migrations, broker]
    if clickhouse:
        components += [PipelineService(settings, environment), AlertsService(settings, environment)]
    return components


def add_environment(program: Program, variables: Mapping[str, str]) -> None:
    """Add variables to the environment of the command of a program."""
    build_command = program.command

    def command() -> Command:
        command = build_command()
        return replace(command, env={**command.env, **variables})

    program.command = command  # type: ignore[method-assign]


def replace_port(url: str, port: int) -> str:
    parts = urlsplit(url)
    credentials, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{credentials}{at}127.0.0.1:{port}"))


def main() -> None:
    layout = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=PlatformLayout)
    home = Path(layout.home)
    lock = HomeLock(home)
    stop_orphans(home)
    url = f"http://127.0.0.1:{layout.ports['broker']}"
    supervisor = Supervisor(
        home,
        build_components(layout),
        url,
        lock,
        lambda component, message: print(component, message, flush=True),
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: supervisor.request_stop())
    supervisor.run()


if __name__ == "__main__":
    main()
