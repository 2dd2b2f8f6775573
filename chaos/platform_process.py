"""Run a supervised platform on fixed ports: `python -m chaos.platform_process LAYOUT.json`.

It has the components of `penstock up`, except that the broker reaches PostgreSQL and Valkey through proxies.
Without the pipeline it has neither Spark nor ClickHouse, and starts in a few seconds.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import msgspec

from penstock.broker.journal.push_journal import journal_directory
from penstock.broker.store_migrations import migrate
from penstock.config import Settings
from penstock.embedded.servers.clickhouse import ClickHouse
from penstock.embedded.servers.postgres import Postgres
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import Component
from penstock.embedded.supervision.one_shot import OneShotTask
from penstock.embedded.supervision.platform import build_environment
from penstock.embedded.supervision.service_components import BrokerService, PipelineService
from penstock.embedded.supervision.supervisor import HomeLock, Supervisor, stop_orphans

BROKER_WORKERS = 2
UNREACHABLE_URL = "http://127.0.0.1:9"
"""The ClickHouse URL of a platform without one."""


class PlatformLayout(msgspec.Struct, frozen=True):
    """The home and the ports of a platform. A restarted platform has the same ones."""

    home: str
    broker_port: int
    postgres_port: int
    postgres_proxy_port: int
    valkey_port: int
    valkey_proxy_port: int
    clickhouse_port: int
    pipeline: bool


def build_components(layout: PlatformLayout) -> list[Component]:
    home = Path(layout.home)
    postgres, valkey = Postgres(home, layout.postgres_port), Valkey(home, layout.valkey_port)
    clickhouse = ClickHouse(home, layout.clickhouse_port) if layout.pipeline else None
    direct = Settings(
        home=home,
        port=layout.broker_port,
        workers=BROKER_WORKERS,
        postgres_url=postgres.url,
        redis_url=valkey.url,
        clickhouse_url=clickhouse.url if clickhouse else UNREACHABLE_URL,
        drain_s=0.0,
    )
    direct = direct.model_copy(update={"journal_dir": str(journal_directory(direct))})
    proxied = direct.model_copy(
        update={
            "postgres_url": replace_port(postgres.url, layout.postgres_proxy_port),
            "redis_url": replace_port(valkey.url, layout.valkey_proxy_port),
        }
    )
    migrated = direct if clickhouse else direct.model_copy(update={"clickhouse_url": ""})
    migrations = OneShotTask(
        "migrations",
        ("postgres", "clickhouse"),
        lambda: f"{len(asyncio.run(migrate(migrated)))} applied",
    )
    components: list[Component] = [postgres, valkey]
    if clickhouse:
        components.append(clickhouse)
    components += [migrations, BrokerService(proxied, build_environment(proxied))]
    if clickhouse:
        components.append(PipelineService(direct, build_environment(direct)))
    return components


def replace_port(url: str, port: int) -> str:
    parts = urlsplit(url)
    credentials, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{credentials}{at}127.0.0.1:{port}"))


def main() -> None:
    layout = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=PlatformLayout)
    home = Path(layout.home)
    lock = HomeLock(home)
    stop_orphans(home)
    url = f"http://127.0.0.1:{layout.broker_port}"
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
