"""The servers of a benchmark: one PostgreSQL for all, Valkey for Penstock's metric events, and brokers.

All servers listen on loopback and keep their data in a temporary directory, which is removed at the end.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import psutil

from penstock.broker.store_migrations import migrate
from penstock.config import Settings
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.postgres import Postgres
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import running
from penstock.embedded.supervision.platform import build_environment
from penstock.embedded.supervision.process import Command
from penstock.embedded.supervision.service_components import BrokerService

UNREACHABLE_URL = "http://127.0.0.1:9"
"""The ClickHouse URL of brokers in benchmarks that do not call the metrics routes: only these read it."""


class BenchmarkPostgres(Postgres):
    """The embedded PostgreSQL as shipped, with enough connections for all contestants at once."""

    extra_settings: tuple[str, ...] = ("max_connections=400",)

    def command(self) -> Command:
        command = super().command()
        flags = tuple(argument for setting in self.extra_settings for argument in ("-c", setting))
        return replace(command, argv=(*command.argv, *flags))


@dataclass(frozen=True, slots=True)
class ProcessTree:
    """A process and all its descendants."""

    leader: psutil.Process

    def processes(self) -> list[psutil.Process]:
        return [self.leader, *self.leader.children(recursive=True)]

    def cpu_s(self) -> float:
        """Return the CPU seconds used so far, including those of children that ended."""
        total = 0.0
        for process in self.processes():
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
            if process.pid == self.leader.pid:
                total += times.children_user + times.children_system
        return total

    def exact_cpu_s(self) -> float:
        """Return the CPU seconds of the processes that run, to the nanosecond where the system tells them.

        `cpu_s` counts in hundredths of a second, which is too coarse for short turns.
        """
        if sys.platform != "linux":
            return self.cpu_s()
        total = 0.0
        for process in self.processes():
            with suppress(OSError):  # it has ended since the search
                # The id of another process's CPU clock, as clock_getcpuclockid(3) builds it.
                total += time.clock_gettime(~process.pid << 3 | 2)
        return total

    def resident_mb(self) -> list[float]:
        """Return the resident memory of each process, largest first."""
        return sorted((process.memory_info().rss / 2**20 for process in self.processes()), reverse=True)


@dataclass(frozen=True, slots=True)
class RunningBroker:
    port: int
    database_url: str
    processes: ProcessTree


class Servers:
    """The running servers. The end of the `with` block of `run_servers()` stops them."""

    def __init__(self, home: Path, stack: ExitStack, postgres_settings: tuple[str, ...] = ()) -> None:
        self.home = home
        self._stack = stack
        self.postgres = BenchmarkPostgres(home, any_free_port())
        self.postgres.extra_settings = (*BenchmarkPostgres.extra_settings, *postgres_settings)
        self.postgres_processes: ProcessTree | None = None
        self._valkey = Valkey(home, any_free_port())

    def start(self) -> None:
        child = self._stack.enter_context(running(self.postgres))
        self.postgres_processes = ProcessTree(psutil.Process(child.process.pid))
        self._stack.enter_context(running(self._valkey))

    @property
    def redis_url(self) -> str:
        return self._valkey.url

    async def create_database(self, name: str) -> str:
        """Create a database and return its URL."""
        connection = await asyncpg.connect(self.postgres.url)
        try:
            await connection.execute(f"CREATE DATABASE {name}")
        finally:
            await connection.close()
        return urlunsplit(urlsplit(self.postgres.url)._replace(path=f"/{name}"))

    async def create_broker_settings(self, name: str, **overrides: Any) -> Settings:
        """Create a migrated database of that name and return the settings of a broker on it."""
        home = self.home / name
        home.mkdir()
        settings = Settings(
            home=home,
            port=any_free_port(),
            postgres_url=await self.create_database(name),
            redis_url=self._valkey.url,
            **{"clickhouse_url": UNREACHABLE_URL, "log_level": "warning", **overrides},
        )
        await migrate(settings.model_copy(update={"clickhouse_url": ""}))
        return settings

    async def start_broker(
        self,
        name: str,
        workers: int = 1,
        *,
        database_delay_ms: float = 0,
        environment: Mapping[str, str] | None = None,
        **overrides: Any,
    ) -> RunningBroker:
        """Start a broker on a new database of that name, with a port of its own.

        `database_delay_ms` delays all data between broker and database, in each direction. `environment` has
        variables besides the settings, `overrides` further settings of the broker.
        """
        settings = await self.create_broker_settings(name, workers=workers, **overrides)
        url = settings.postgres_url
        if database_delay_ms:
            proxy_url = self._start_delay_proxy(url, database_delay_ms)
            settings = settings.model_copy(update={"postgres_url": proxy_url})
        variables = build_environment(settings) | dict(environment or {})
        child = self._stack.enter_context(running(BrokerService(settings, variables)))
        processes = ProcessTree(psutil.Process(child.process.pid))
        return RunningBroker(settings.port, url, processes)

    def _start_delay_proxy(self, url: str, delay_ms: float) -> str:
        """Return the URL of the same database through a proxy that delays all data."""
        parts = urlsplit(url)
        port = any_free_port()
        command = [sys.executable, "-m", "bench.delay_proxy", str(port), str(parts.port), str(delay_ms)]
        proxy = subprocess.Popen(command)
        self._stack.callback(proxy.wait)
        self._stack.callback(proxy.kill)
        user = parts.netloc.rpartition("@")[0]
        return urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{port}"))


@contextmanager
def run_servers(*postgres_settings: str) -> Iterator[Servers]:
    """Run PostgreSQL and Valkey. At the end, stop them and all brokers and remove their data."""
    home = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    home.chmod(0o755)  # as root, PostgreSQL runs as another user and must enter it
    try:
        with ExitStack() as stack:
            servers = Servers(home, stack, postgres_settings)
            servers.start()
            yield servers
    finally:
        shutil.rmtree(home)


async def wal_position(connection: asyncpg.Connection) -> int:
    """Return the bytes of write-ahead log written so far by the whole server."""
    return int(await connection.fetchval("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))
