"""Kill any server, or the supervisor: it is noticed and repaired, and nothing is left behind or lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import clickhouse_connect
import pytest
from redis import Redis

from penstock.embedded.servers.clickhouse import ClickHouse
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.postgres import Postgres
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import start
from penstock.embedded.supervision.process_identity import ProcessIdentity, identify, write_pid_file
from penstock.embedded.supervision.state import ComponentState, State, read_state
from tests.waiting import wait_until

NAMES = ("postgres", "valkey", "clickhouse")


class ThreeServers:
    """A supervisor process on a home, asked how it is by its state file and by `penstock status`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.ports = [any_free_port() for _ in NAMES]
        self.postgres = Postgres(home, self.ports[0])
        self.valkey = Valkey(home, self.ports[1])
        self.clickhouse = ClickHouse(home, self.ports[2])
        self.process: subprocess.Popen[str] | None = None
        self.output = home / "supervisor.out"

    def start(self) -> None:
        script = Path(__file__).with_name("three_servers.py")
        argv = [sys.executable, str(script), str(self.home), *map(str, self.ports)]
        with self.output.open("w") as output:
            self.process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT, text=True)
        wait_until(self.all_up, 60, "all three servers are up")

    def status(self) -> tuple[int, dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, "-m", "penstock.cli.main", "status", "--json"],
            env={**os.environ, "PENSTOCK_HOME": str(self.home)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, json.loads(done.stdout)

    def all_up(self) -> bool:
        state = read_state(self.home)
        return state is not None and state.all_up

    def part(self, name: str) -> ComponentState:
        state = read_state(self.home)
        assert state is not None
        return next(part for part in state.parts if part.name == name)

    def identities(self) -> dict[str, ProcessIdentity]:
        found = {name: identify(self.part(name).pid or 0) for name in NAMES}
        assert all(found.values())
        return {name: identity for name, identity in found.items() if identity}

    def end(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(60) == 0, self.output.read_text()
            self.process = None


@pytest.fixture(scope="module")
def servers(server_home: Path) -> Iterator[ThreeServers]:
    home = server_home / "chaos"
    home.mkdir()
    servers = ThreeServers(home)
    servers.start()
    try:
        yield servers
    finally:
        if servers.process is not None:
            servers.process.send_signal(signal.SIGTERM)
            servers.process.wait(60)


async def remember(servers: ThreeServers, number: int) -> None:
    """Write a number to all three, on disk as each promises."""
    connection = await asyncpg.connect(servers.postgres.url)
    await connection.execute("CREATE TABLE IF NOT EXISTS kept (n int)")
    await connection.execute("INSERT INTO kept VALUES ($1)", number)
    await connection.close()
    with Redis.from_url(servers.valkey.url) as client:
        client.sadd("kept", number)
        client.execute_command("WAITAOF", 1, 0, 5000)
    with clickhouse_connect.get_client(dsn=servers.clickhouse.url) as client:
        client.command("CREATE TABLE IF NOT EXISTS kept (n Int32) ENGINE = MergeTree ORDER BY n")
        client.insert("kept", [[number]], column_names=["n"])


async def remembered(servers: ThreeServers) -> list[set[int]]:
    connection = await asyncpg.connect(servers.postgres.url)
    in_postgres = {row["n"] for row in await connection.fetch("SELECT n FROM kept")}
    await connection.close()
    with Redis.from_url(servers.valkey.url) as client:
        in_valkey = {int(member) for member in client.smembers("kept")}
    with clickhouse_connect.get_client(dsn=servers.clickhouse.url) as client:
        in_clickhouse = {row[0] for row in client.query("SELECT n FROM kept").result_rows}
    return [in_postgres, in_valkey, in_clickhouse]


@pytest.mark.parametrize("name", NAMES)
async def test_a_killed_server_is_noticed_reported_and_repaired(servers: ThreeServers, name: str) -> None:
    number = NAMES.index(name)
    await remember(servers, number)
    before = servers.part(name)
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)
    wait_until(
        lambda: servers.all_up() and servers.part(name).restarts == before.restarts + 1,
        30,
        f"{name} is up again",
    )
    code, status = servers.status()
    after = next(part for part in status["parts"] if part["name"] == name)
    assert code == 0
    assert after["pid"] != before.pid
    assert after["lastFailure"] == f"{name} was ended by SIGKILL"
    assert f"{name} is up again" in servers.output.read_text()
    assert all(number in numbers for numbers in await remembered(servers))


def test_a_part_that_is_down_is_reported_as_such_meanwhile(servers: ThreeServers) -> None:
    """Suspended, it neither dies nor answers; status says so and ends with 1."""
    pid = servers.part("valkey").pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: servers.part("valkey").state is State.SILENT, 15, "the silence is noticed")
        assert servers.status()[0] == 1
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(servers.all_up, 15, "it answers again, without a restart")
    assert servers.part("valkey").pid == pid


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux tells a child of its parent's death"
)
async def test_nothing_outlives_a_killed_supervisor_and_the_next_start_cleans_up(
    servers: ThreeServers,
) -> None:
    await remember(servers, 99)
    identities = servers.identities()
    assert servers.process is not None
    servers.process.kill()
    servers.process.wait()
    for name, identity in identities.items():
        wait_until(lambda identity=identity: not identity.alive, 20, f"{name} follows the supervisor")
    assert servers.status()[1]["running"] is False

    # A server that did not follow, as on a system without death signals.
    stray = start(servers.valkey)
    write_pid_file(servers.home / "run" / "valkey.pid", stray.identity)
    wait_until(lambda: servers.valkey.probe().ok, 20, "the stray server answers")
    servers.start()
    assert not stray.identity.alive
    assert "ended valkey" in servers.output.read_text()
    assert all(99 in numbers for numbers in await remembered(servers))

    identities = servers.identities()
    servers.end()
    assert not any(identity.alive for identity in identities.values())
    assert servers.status()[1]["running"] is False
