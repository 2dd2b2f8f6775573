"""Migrate and upgrade a platform under load, with another fault in the middle."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

import asyncpg
import httpx
import psutil

from chaos.next_version import InstalledVersion, make_next_version
from chaos.platform import ChaosPlatform, NotRecovered
from chaos.platform_process import build_settings
from chaos.polling import poll
from penstock.embedded.servers.ports import BROKER_MODULE, any_free_port
from penstock.embedded.supervision.platform import build_environment

TIMEOUT_S = 180.0
MIGRATION_START_S = 20.0
STOP_TIMEOUT_S = 30.0
MAX_SERVING_S = 6.0
"""How long two versions serve at most."""

MIGRATE_POSTGRES_ALONE = """
import asyncio
from penstock.broker.store_migrations import migrate
from penstock.config import load_settings
print(asyncio.run(migrate(load_settings())))
"""
"""The command migrates ClickHouse too, which a platform without the pipeline does not have."""

Inject = Callable[[], Awaitable[None]]


class Upgrades:
    """Runs migrations and upgrades, one at a time. The platform runs the latest version from then on."""

    def __init__(self, platform: ChaosPlatform) -> None:
        self._platform = platform
        self._lock = asyncio.Lock()
        self._number = 0
        self._log = (platform.folder / "upgrades.log").open("ab")

    def close(self) -> None:
        self._log.close()

    async def migrate(self, share: float, inject: Inject | None = None, *, kill: bool = False) -> None:
        """Replace all SQL functions on the live database, and inject a fault after a share of them.

        The migration is repeated until it succeeds.
        """
        async with self._lock:
            await self._migrate(share, inject, kill=kill)

    async def upgrade(self, share: float, duration_s: float, inject: Inject | None = None) -> None:
        """Upgrade to a next version: migrate, serve with brokers of both versions, end the old one.

        The fault comes while both serve.
        """
        async with self._lock:
            self._number += 1
            directory = self._platform.folder / "versions" / str(self._number)
            version = await asyncio.to_thread(
                make_next_version, self._platform.version.directory, directory, self._number
            )
            self._platform.switch_version(version)
            await self._migrate(share, None)
            await self._replace_broker(version, duration_s, inject)

    async def _migrate(self, share: float, inject: Inject | None, *, kill: bool = False) -> None:
        functions = await self._forget_functions()
        process = self._start_migration()
        try:
            if inject is not None or kill:
                await poll(lambda: self._have_replaced(share * functions, process), MIGRATION_START_S)
            if kill:
                process.kill()
            if inject is not None:
                await inject()

            async def has_succeeded() -> bool:
                nonlocal process
                if await asyncio.to_thread(process.wait, TIMEOUT_S) == 0:
                    return True
                process = self._start_migration()
                return False

            if not await poll(has_succeeded, TIMEOUT_S):
                raise NotRecovered(f"No migration has succeeded within {TIMEOUT_S:.0f} s")
        finally:
            _kill(process)

    def _start_migration(self) -> subprocess.Popen[bytes]:
        layout, version = self._platform.layout, self._platform.version
        environment = version.environment(build_environment(build_settings(layout)))
        if layout.pipeline:
            return self._start(version.command("migrate"), environment)
        environment["PENSTOCK_CLICKHOUSE_URL"] = ""
        return self._start([sys.executable, "-c", MIGRATE_POSTGRES_ALONE], environment)

    def _start(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            env=environment,
            cwd=self._platform.folder,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    async def _forget_functions(self) -> int:
        """Let the next migration replace every function, and return their number."""

        async def forget() -> int:
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
                connection = await asyncpg.connect(self._platform.postgres_url, timeout=5)
                try:
                    statement = "UPDATE penstock.schema_migrations SET checksum = '' WHERE kind = 'function'"
                    return int((await connection.execute(statement, timeout=10)).split()[1])
                finally:
                    connection.terminate()
            return 0

        return await poll(forget, TIMEOUT_S)

    async def _have_replaced(self, functions: float, process: subprocess.Popen[bytes]) -> bool:
        """Whether a migration has replaced this many functions, or has ended."""
        if process.poll() is not None:
            return True
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            connection = await asyncpg.connect(self._platform.postgres_url, timeout=5)
            try:
                statement = """SELECT count(*) FROM penstock.schema_migrations
                               WHERE kind = 'function' AND checksum <> ''"""
                return bool(await connection.fetchval(statement, timeout=5) >= functions)
            finally:
                connection.terminate()
        return False

    async def _replace_broker(
        self, version: InstalledVersion, duration_s: float, inject: Inject | None
    ) -> None:
        """Serve with a broker of the next version beside the old one, then restart the old one."""
        platform = self._platform
        port = any_free_port()
        home = platform.folder / "upgrade"
        # Without a journal, which would end with this broker.
        changes = {"port": port, "home": home, "journal_dir": str(home), "journal_mb": 0, "workers": 1}
        settings = build_settings(platform.layout).model_copy(update=changes)
        environment = version.environment(build_environment(settings))
        process = self._start([sys.executable, "-m", BROKER_MODULE], environment)
        clients = platform.proxies["clients"]
        try:
            await self._wait_until_ready(port)
            clients.add_server(port)
            clients.cut()  # kept connections would stay with the old broker
            if inject is not None:
                await inject()
            await asyncio.sleep(min(duration_s, MAX_SERVING_S))
            await self._wait_until_ready(port)
            leader = platform.find_component("broker")
            if leader is not None:
                with suppress(psutil.NoSuchProcess):
                    leader.terminate()
                    await asyncio.to_thread(psutil.wait_procs, [leader], STOP_TIMEOUT_S)
            await platform.wait_until_healthy(TIMEOUT_S)
        finally:
            clients.remove_server(port)
            process.terminate()
            await asyncio.to_thread(_wait_or_kill, process)

    async def _wait_until_ready(self, port: int) -> None:
        async with httpx.AsyncClient(timeout=5) as client:

            async def is_ready() -> bool:
                with suppress(httpx.HTTPError):
                    return (await client.get(f"http://127.0.0.1:{port}/health/ready")).status_code == 200
                return False

            if not await poll(is_ready, TIMEOUT_S):
                raise NotRecovered(f"The broker of the next version is not ready after {TIMEOUT_S:.0f} s")


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        _kill(process)
