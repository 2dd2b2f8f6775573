"""Kill a server or the supervisor: the platform recovers, loses no data and leaves no process running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TypedDict

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
from penstock.embedded.supervision.state import ComponentState, RunState, read_state
from tests.deadlines import deadline_s
from tests.waiting import wait_until

NAMES = ("postgres", "valkey", "clickhouse")


class ComponentDocument(TypedDict):
    name: str
    pid: int | None
    lastFailure: str | None


class StatusDocument(TypedDict):
    running: bool
    parts: list[ComponentDocument]


def is_dead(identity: ProcessIdentity) -> bool:
    return not identity.is_alive


class ThreeServers:
    """A supervisor process with three servers, observed through its state file and `penstock status`."""

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

    def run_status_command(self) -> tuple[int, StatusDocument]:
        """Run `penstock status --json`; return its exit code and its output."""
        result = subprocess.run(
            [sys.executable, "-m", "penstock.cli.main", "status", "--json"],
            env={**os.environ, "PENSTOCK_HOME": str(self.home)},
            capture_output=True,
            text=True,
            check=False,
        )
        return result.returncode, json.loads(result.stdout)

    def all_up(self) -> bool:
        state = read_state(self.home)
        return state is not None and state.all_up

    def component(self, name: str) -> ComponentState:
        state = read_state(self.home)
        assert state is not None
        component = state.find_component(name)
        assert component is not None
        return component

    def identities(self) -> dict[str, ProcessIdentity]:
        identities = {name: identify(self.component(name).pid or 0) for name in NAMES}
        assert all(identities.values())
        return {name: identity for name, identity in identities.items() if identity}

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(deadline_s(60)) == 0, self.output.read_text()
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
            servers.process.wait(deadline_s(60))


async def write_number(servers: ThreeServers, number: int) -> None:
    """Write a number durably to all three servers."""
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


async def read_numbers(servers: ThreeServers) -> list[set[int]]:
    connection = await asyncpg.connect(servers.postgres.url)
    in_postgres = {row["n"] for row in await connection.fetch("SELECT n FROM kept")}
    await connection.close()
    with Redis.from_url(servers.valkey.url) as client:
        in_valkey = {int(member) for member in client.smembers("kept")}
    with clickhouse_connect.get_client(dsn=servers.clickhouse.url) as client:
        in_clickhouse = {row[0] for row in client.query("SELECT n FROM kept").result_rows}
    return [in_postgres, in_valkey, in_clickhouse]


@pytest.mark.parametrize("name", NAMES)
async def test_a_killed_server_is_reported_and_restarted(servers: ThreeServers, name: str) -> None:
    number = NAMES.index(name)
    await write_number(servers, number)
    before = servers.component(name)
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)
    wait_until(
        lambda: servers.all_up() and servers.component(name).restarts == before.restarts + 1,
        30,
        f"{name} is up again",
    )
    exit_code, status = servers.run_status_command()
    after = next(component for component in status["parts"] if component["name"] == name)
    assert exit_code == 0
    assert after["pid"] != before.pid
    assert after["lastFailure"] == f"{name} was terminated by SIGKILL"
    assert f"{name} is up again" in servers.output.read_text()
    assert all(number in numbers for numbers in await read_numbers(servers))


def test_a_suspended_server_is_reported_and_not_restarted(servers: ThreeServers) -> None:
    """A suspended server neither dies nor answers; `penstock status` says so and exits with 1."""
    pid = servers.component("valkey").pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(
            lambda: servers.component("valkey").state is RunState.UNRESPONSIVE, 15, "the supervisor notices"
        )
        assert servers.run_status_command()[0] == 1
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(servers.all_up, 15, "the server answers again, without a restart")
    assert servers.component("valkey").pid == pid


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux signals a child when its parent dies"
)
async def test_servers_die_with_a_killed_supervisor_and_the_next_start_stops_orphans(
    servers: ThreeServers,
) -> None:
    await write_number(servers, 99)
    identities = servers.identities()
    assert servers.process is not None
    servers.process.kill()
    servers.process.wait()
    for name, identity in identities.items():
        wait_until(partial(is_dead, identity), 20, f"{name} dies with the supervisor")
    assert servers.run_status_command()[1]["running"] is False

    # A server that did not die, as on a system without death signals.
    orphan = start(servers.valkey)
    write_pid_file(servers.home / "run" / "valkey.pid", orphan.identity)
    wait_until(lambda: servers.valkey.probe().ok, 20, "the orphan answers")
    servers.start()
    assert not orphan.identity.is_alive
    assert "stopped valkey" in servers.output.read_text()
    assert all(99 in numbers for numbers in await read_numbers(servers))

    identities = servers.identities()
    servers.stop()
    assert not any(identity.is_alive for identity in identities.values())
    assert servers.run_status_command()[1]["running"] is False
