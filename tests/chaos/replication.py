"""A primary and a streaming standby, both embedded servers, which can be killed and promoted."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import psutil

from penstock.durable import migrations
from penstock.embedded.servers.data_directory import locate_postgres
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.postgres import DATABASE, USER, Postgres
from penstock.embedded.supervision.component import start, wait_until_healthy
from penstock.embedded.supervision.process import Child, stop
from tests.deadlines import deadline_s
from tests.unsynced_servers import UnsyncedPostgres
from tests.waiting import wait_until_async

STREAMING = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"


class ReplicatedPostgres:
    """Two servers. The standby is a base backup of the primary and follows it."""

    def __init__(self, home: Path) -> None:
        homes = [home / "first", home / "second"]
        for directory in homes:
            directory.mkdir(parents=True)
            directory.chmod(0o755)
        self.primary: Postgres = UnsyncedPostgres(homes[0], any_free_port())
        self.standby: Postgres = UnsyncedPostgres(homes[1], any_free_port())
        self._children: dict[Postgres, Child] = {}

    @property
    def url(self) -> str:
        """The URL of both servers."""
        password = (self.primary.home / "password").read_text()
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        return f"postgresql://{USER}:{password}@{hosts}/{DATABASE}?target_session_attrs=read-write"

    async def start(self, *, synchronous: bool) -> None:
        """Start and migrate the primary, then start the standby and wait until it follows."""
        self.primary.prepare()
        self._children[self.primary] = start(self.primary)
        wait_until_healthy(self.primary, self._children[self.primary])
        async with migrations.migration_lock(self.primary.url) as connection:
            await migrations.apply(connection)
        self._copy_primary()
        self.standby.prepare()
        self._children[self.standby] = start(self.standby)
        primary = await asyncpg.connect(self.primary.url)
        await wait_until_async(lambda: primary.fetchval(STREAMING), 20, "the standby follows the primary")
        if synchronous:
            await primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            await primary.execute("SELECT pg_reload_conf()")
            sync = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
            await wait_until_async(lambda: primary.fetchval(sync), 20, "replication is synchronous")
        await primary.close()

    def _copy_primary(self) -> None:
        password = (self.primary.home / "password").read_text()
        (self.standby.home / "password").write_text(password)
        layout = locate_postgres(self.standby.home)
        layout.data.mkdir(mode=0o700)
        if layout.account:
            os.chown(layout.data, layout.account.uid, layout.account.gid)
        subprocess.run(
            [
                *(str(layout.programs / "pg_basebackup"), "-D", str(layout.data), "-R", "-c", "fast"),
                *("-h", "127.0.0.1", "-p", str(self.primary.port), "-U", USER),
            ],
            cwd="/",
            env={**os.environ, "PGPASSWORD": password},
            user=layout.account.uid if layout.account else None,
            group=layout.account.gid if layout.account else None,
            check=True,
            capture_output=True,
            timeout=deadline_s(60),
        )

    def kill_primary(self) -> None:
        """Kill the primary with all its processes at once, as if its machine had died."""
        process = psutil.Process(self._children[self.primary].process.pid)
        for victim in [process, *process.children(recursive=True)]:
            victim.send_signal(signal.SIGKILL)
        self._children[self.primary].process.wait(deadline_s(30))

    async def revive_primary(self) -> None:
        """Start the former primary again, as a primary, which is the mistake that fencing prevents."""
        self.primary.prepare()
        self._children[self.primary] = start(self.primary)
        connection = await wait_until_async(
            lambda: asyncpg.connect(self.primary.url), 30, "the former primary starts"
        )
        await connection.close()

    def pause_replication(self) -> None:
        """Freeze the process of the primary that sends its log."""
        process = psutil.Process(self._children[self.primary].process.pid)
        (sender,) = (child for child in process.children() if "walsender" in " ".join(child.cmdline()))
        sender.send_signal(signal.SIGSTOP)

    async def promote_standby(self) -> None:
        standby = await asyncpg.connect(self.standby.url)
        assert await standby.fetchval("SELECT pg_promote()"), "the standby was not promoted in time"
        await standby.close()

    def stop(self) -> None:
        for server, child in self._children.items():
            server.close()
            stop(child, server.stop_timeout_s)


@contextmanager
def replicated_postgres(home: Path) -> Iterator[ReplicatedPostgres]:
    servers = ReplicatedPostgres(home)
    try:
        yield servers
    finally:
        servers.stop()
