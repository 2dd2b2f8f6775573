"""Check the servers that the settings name before a command uses them: log in, ask for version and rights.

All servers are checked at the same time. The first unusable one ends the command with one line. A version
that is not tested is a warning.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor

import typer

from penstock.cli.problem_output import show_warning
from penstock.config import Settings
from penstock.durable.postgres_probe import PostgresProbe
from penstock.embedded.servers.redis_probe import RedisProbe
from penstock.embedded.servers.server_probe import ServerProbe
from penstock.errors import DatabaseMissing, ServerStarting, ServerUnreachable

START_TIMEOUT_S = 4.0
"""How long a server may say that it starts before the command ends."""

_RETRY_INTERVAL_S = 0.2


def check_servers(settings: Settings, *names: str, may_be_unreachable: Collection[str] = ()) -> None:
    """Check the servers of these URL settings; an empty one is skipped. Raises ServerUnusable.

    An unreachable server among `may_be_unreachable` is only a warning.
    """
    for name, check in _start_checks(settings, names).items():
        try:
            warning = check.result()
        except ServerUnreachable as error:
            if name not in may_be_unreachable:
                raise
            warning = f"{error.detail} Penstock continues without it."
        if warning:
            show_warning(warning)


def check_servers_to_migrate(settings: Settings, *names: str, create_database: bool) -> None:
    """Check servers whose schemas are migrated next. Raises ServerUnusable.

    Migrations create ClickHouse's database. PostgreSQL's is created here if it is missing and
    `create_database` is set, or if the user at the terminal agrees.
    """
    for name, check in _start_checks(settings, names, creates_clickhouse_database=True).items():
        try:
            warning = check.result()
        except DatabaseMissing as error:
            if not (create_database or _confirm_on_terminal(f"{error.problem}. Create it?")):
                raise
            warning = _create_database(getattr(settings, name))
        if warning:
            show_warning(warning)


def _start_checks(
    settings: Settings, names: tuple[str, ...], creates_clickhouse_database: bool = False
) -> dict[str, Future[str | None]]:
    """Check all servers and return the finished checks, by the name of the setting."""
    probes: dict[str, ServerProbe] = {}
    for name in names:
        url = getattr(settings, name)
        if url and name == "postgres_url":
            probes[name] = PostgresProbe(url)
        elif url and name == "redis_url":
            probes[name] = RedisProbe(url)
        elif url:
            from penstock.warehouse.clickhouse_probe import ClickHouseProbe

            probes[name] = ClickHouseProbe(url, creates_database=creates_clickhouse_database)
    with ThreadPoolExecutor(len(names)) as pool:
        return {name: pool.submit(_check, probe) for name, probe in probes.items()}


def _create_database(postgres_url: str) -> str | None:
    probe = PostgresProbe(postgres_url)
    try:
        probe.create_database()
        return probe.check()
    finally:
        probe.close()


def _confirm_on_terminal(question: str) -> bool:
    """Ask the user. Without a terminal the answer is no."""
    return sys.stdin.isatty() and sys.stderr.isatty() and typer.confirm(question, err=True)


def _check(probe: ServerProbe) -> str | None:
    """Check one server. While it says that it starts, ask again."""
    deadline = time.monotonic() + START_TIMEOUT_S
    try:
        while True:
            try:
                return probe.check()
            except ServerStarting:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_INTERVAL_S)
    finally:
        probe.close()
