"""The servers of a benchmark: one PostgreSQL for all, Valkey for Penstock's metric events, and brokers.

Everything runs on loopback out of a temporary directory and is gone at the end.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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

NOWHERE = "http://127.0.0.1:9"
"""ClickHouse is only read by the metrics routes, which no benchmark of the broker asks."""


class RoomyPostgres(Postgres):
    """The embedded PostgreSQL as it is shipped, with room for every contestant's connections at once."""

    extra: tuple[str, ...] = ("max_connections=400",)

    def command(self) -> Command:
        command = super().command()
        flags = tuple(word for setting in self.extra for word in ("-c", setting))
        return replace(command, argv=(*command.argv, *flags))


@dataclass(frozen=True, slots=True)
class RunningBroker:
    port: int
    database_url: str
    processes: Processes


@dataclass(frozen=True, slots=True)
class Processes:
    """A process and all it started."""

    leader: psutil.Process

    def all(self) -> list[psutil.Process]:
        return [self.leader, *self.leader.children(recursive=True)]

    def cpu_s(self) -> float:
        """CPU seconds used so far, including what ended children had used."""
        total = 0.0
        for process in self.all():
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
            if process.pid == self.leader.pid:
                total += times.children_user + times.children_system
        return total

    def resident_mb(self) -> list[float]:
        """Resident memory of each process, largest first."""
        return sorted((process.memory_info().rss / 2**20 for process in self.all()), reverse=True)


class Servers:
    """What is running; `database` and `broker` add to it. Ends with the `with` block of `servers()`."""

    def __init__(self, home: Path, stack: ExitStack, postgres_settings: tuple[str, ...] = ()) -> None:
        self._home = home
        self._stack = stack
        self.postgres = RoomyPostgres(home, any_free_port())
        self.postgres.extra = (*RoomyPostgres.extra, *postgres_settings)
        self.postgres_processes: Processes | None = None
        self._valkey = Valkey(home, any_free_port())

    def start(self) -> None:
        child = self._stack.enter_context(running(self.postgres))
        self.postgres_processes = Processes(psutil.Process(child.process.pid))
        self._stack.enter_context(running(self._valkey))

    @property
    def redis_url(self) -> str:
        return self._valkey.url

    async def database(self, name: str) -> str:
        """The URL of a new database."""
        connection = await asyncpg.connect(self.postgres.url)
        try:
            await connection.execute(f"CREATE DATABASE {name}")
        finally:
            await connection.close()
        return urlunsplit(urlsplit(self.postgres.url)._replace(path=f"/{name}"))

    async def broker(
        self, name: str, workers: int = 1, *, distance_ms: float = 0, **more: Any
    ) -> RunningBroker:
        """A broker on a new database of that name, listening on a port of its own.

        With `distance_ms` every word between the two takes that long.
        """
        home = self._home / name
        home.mkdir()
        url = await self.database(name)
        settings = Settings(
            home=home,
            port=any_free_port(),
            workers=workers,
            postgres_url=url,
            redis_url=self._valkey.url,
            clickhouse_url=NOWHERE,
            log_level="warning",
            **more,
        )
        await migrate(settings.model_copy(update={"clickhouse_url": ""}))
        if distance_ms:
            settings = settings.model_copy(update={"postgres_url": self._line(url, distance_ms)})
        child = self._stack.enter_context(running(BrokerService(settings, build_environment(settings))))
        processes = Processes(psutil.Process(child.process.pid))
        return RunningBroker(settings.port, url, processes)

    def _line(self, url: str, distance_ms: float) -> str:
        """The URL of the same database at the end of a long line."""
        parts = urlsplit(url)
        port = any_free_port()
        command = [sys.executable, "-m", "bench.distance", str(port), str(parts.port), str(distance_ms)]
        line = subprocess.Popen(command)
        self._stack.callback(line.wait)
        self._stack.callback(line.kill)
        user = parts.netloc.rpartition("@")[0]
        return urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{port}"))


@contextmanager
def servers(*postgres_settings: str) -> Iterator[Servers]:
    """PostgreSQL and Valkey, started; all that was added is stopped at the end and its data removed."""
    home = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    home.chmod(0o755)  # as root, PostgreSQL runs as another user and must pass through
    try:
        with ExitStack() as stack:
            made = Servers(home, stack, postgres_settings)
            made.start()
            yield made
    finally:
        shutil.rmtree(home)


async def wal_position(connection: asyncpg.Connection) -> int:
    """Bytes of write-ahead log written so far by the whole server."""
    return await connection.fetchval("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
