"""Every log of a platform has the time and the level of each record."""

from __future__ import annotations

import os
import re
import signal
import socket
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from penstock.embedded.servers.home_secrets import ensure_password
from penstock.embedded.supervision.state import ComponentState, read_state
from penstock.log_format import LINE_START
from tests.waiting import wait_until
from tests.whole_platform import START_TIMEOUT_S, RunningPlatform

TIMEOUT_S = 60
POSTGRES_LINE = (
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC \[\d+\] "
    r"(?:LOG|WARNING|ERROR|FATAL|DETAIL|HINT|CONTEXT|STATEMENT):  "
)
VALKEY_LINE = r"\d+:[CMSX] \d\d \w{3} \d{4} \d\d:\d\d:\d\d\.\d{3} [.*#-] "

LINE_STARTS = {
    "broker": LINE_START,
    "clickhouse": LINE_START,
    "pipeline": LINE_START,
    "alerts": LINE_START,
    "migrations": LINE_START,
    "postgres": POSTGRES_LINE,
    "supervisor": LINE_START,
    "valkey": VALKEY_LINE,
}
"""What the first line of a record looks like. Further lines of a record are indented."""


class Logs:
    """The logs of a platform, and ways to make its components write warnings."""

    def __init__(self, platform: RunningPlatform) -> None:
        self.platform = platform
        self.home: Path = platform.home

    def component(self, name: str) -> ComponentState:
        state = read_state(self.home)
        component = state.find_component(name) if state else None
        assert component is not None
        return component

    def read(self, name: str) -> str:
        return (self.home / "logs" / f"{name}.log").read_text()

    def send_nonsense(self, name: str) -> None:
        """Send a server a request that is not in its protocol."""
        url = urlsplit(self.component(name).address)
        with socket.create_connection((url.hostname, url.port), TIMEOUT_S) as connection:
            connection.sendall(b"POST nonsense\r\nHost: x\r\n\r\n")
            while connection.recv(4096):
                pass

    async def fail_statement(self) -> None:
        url = urlsplit(self.component("postgres").address)
        connection = await asyncpg.connect(
            host=url.hostname,
            port=url.port,
            user="penstock",
            password=ensure_password(self.home),
            database="penstock",
        )
        with pytest.raises(asyncpg.DivisionByZeroError):
            await connection.execute("SELECT 1 /\n0")
        await connection.close()

    def wait_for(self, name: str, text: str) -> None:
        wait_until(lambda: text in self.read(name), TIMEOUT_S, f"the log of {name} has {text!r}")


async def test_every_record_starts_with_its_time_and_level(platform: RunningPlatform) -> None:
    logs = Logs(platform)
    await logs.fail_statement()
    logs.wait_for("postgres", "ERROR:  division by zero")
    logs.send_nonsense("valkey")
    logs.wait_for("valkey", " # Possible SECURITY ATTACK")
    logs.send_nonsense("clickhouse")
    logs.wait_for("clickhouse", " WARNING penstock.clickhouse: code 400")
    pid = logs.component("clickhouse").pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    logs.wait_for("supervisor", " ERROR penstock.supervisor: clickhouse was terminated by SIGKILL")
    logs.wait_for("pipeline", " WARNING ")
    wait_until(lambda: platform.is_healthy, START_TIMEOUT_S, "the platform has recovered")

    assert {path.stem for path in (logs.home / "logs").glob("*.log")} == set(LINE_STARTS)
    for name, line_start in LINE_STARTS.items():
        lines = logs.read(name).splitlines()
        assert re.match(line_start, lines[0]), f"{name}: {lines[0]}"
        unexpected = [line for line in lines if not re.match(rf"{line_start}|\s", line)]
        assert unexpected == [], name
