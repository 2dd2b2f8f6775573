"""The whole platform as a user starts it: `penstock up` with a temporary home."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from penstock.embedded.servers.ports import any_free_port
from tests.deadlines import deadline_s
from tests.directories import make_directory
from tests.waiting import wait_until

START_TIMEOUT_S = 180
STOP_TIMEOUT_S = 60
ALERT_INTERVAL_S = 5
"""Shorter than the default, so that tests wait less."""

LOOPBACK_NETWORK = "127.0.0.0/8"
"""Alert channels may connect to receivers in the tests."""


@dataclass(frozen=True, slots=True)
class RunningPlatform:
    """A platform in child processes, and calls to its HTTP API."""

    url: str
    port: int
    home: Path
    process: subprocess.Popen[bytes]

    def push(self, queue: str, *payloads: object) -> None:
        items = [{"queue": queue, "payload": payload} for payload in payloads]
        response = httpx.post(f"{self.url}/api/v1/push", json={"items": items})
        assert response.status_code == 201, response.text

    def enqueue(self, queue: str, *payloads: object, limit: int) -> None:
        """Enqueue tasks in a run queue and limit how many of them run at once."""
        run_queue = f"{self.url}/api/v1/run-queues/{queue}"
        httpx.put(f"{run_queue}/limits", json={"concurrency": limit}).raise_for_status()
        tasks = {"tasks": [{"payload": payload} for payload in payloads]}
        httpx.post(f"{run_queue}/tasks", json=tasks).raise_for_status()

    def enqueue_delayed(self, queue: str, *payloads: int) -> None:
        """Enqueue tasks that become ready in an hour."""
        tasks = {"tasks": [{"payload": payload, "delayMs": 3_600_000} for payload in payloads]}
        httpx.post(f"{self.url}/api/v1/run-queues/{queue}/tasks", json=tasks).raise_for_status()

    def pop(self, queue: str) -> list[dict[str, Any]]:
        response = httpx.get(f"{self.url}/api/v1/pop/queue/{queue}")
        messages: list[dict[str, Any]] = response.json()["messages"] if response.status_code == 200 else []
        return messages

    def ack(self, message: dict[str, Any], status: str = "completed", error: str | None = None) -> None:
        names = ("transactionId", "partitionId", "leaseId")
        body = {name: message[name] for name in names} | {"status": status, "error": error}
        response = httpx.post(f"{self.url}/api/v1/ack", json=body)
        assert response.status_code == 200, response.text
        assert response.json()[0]["success"] is True, response.text

    def read_points(self, queue: str) -> list[dict[str, Any]]:
        """Return the queue's metrics of the last five minutes."""
        response = httpx.get(f"{self.url}/api/v1/queues/{queue}/metrics", params={"period": "5m"})
        assert response.status_code == 200, response.text
        points: list[dict[str, Any]] = response.json()["timeseries"]
        return points

    def read_counter(self, queue: str, counter: str) -> int:
        return sum(point["throughput"][counter] for point in self.read_points(queue))

    @property
    def is_healthy(self) -> bool:
        status: str = httpx.get(f"{self.url}/health").json()["status"]
        return status == "ok"

    @property
    def has_exited(self) -> bool:
        return self.process.poll() is not None

    def list_processes(self) -> list[psutil.Process]:
        """Return the process of `penstock up` and all its descendants."""
        leader = psutil.Process(self.process.pid)
        return [leader, *leader.children(recursive=True)]


@contextmanager
def running_platform() -> Iterator[RunningPlatform]:
    """Start the platform, wait until it is healthy, stop it like Ctrl-C, and check that no process remains.

    A failure keeps the directory with data and logs.
    """
    directory = make_directory()
    home, output, port = directory / "home", directory / "up.log", any_free_port()
    with output.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.main", "up"],
            env={
                **os.environ,
                "PENSTOCK_HOME": str(home),
                "PENSTOCK_PORT": str(port),
                "PENSTOCK_ALERT_PRIVATE_NETWORKS": LOOPBACK_NETWORK,
                "PENSTOCK_ALERT_INTERVAL_S": str(ALERT_INTERVAL_S),
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    platform = RunningPlatform(f"http://127.0.0.1:{port}", port, home, process)
    try:
        wait_until(lambda: platform.has_exited or platform.is_healthy, START_TIMEOUT_S, "the platform starts")
        assert not platform.has_exited, "`penstock up` exited"
        yield platform
    except AssertionError as failure:
        failure.add_note(f"Output of `penstock up` ({output}):\n{output.read_text()}")
        raise
    finally:
        stop(platform, output)
    shutil.rmtree(directory)


def stop(platform: RunningPlatform, output: Path) -> None:
    processes = [] if platform.has_exited else platform.list_processes()
    platform.process.send_signal(signal.SIGINT)
    try:
        platform.process.wait(deadline_s(STOP_TIMEOUT_S))
    except subprocess.TimeoutExpired:
        platform.process.kill()
        raise
    # psutil identifies a process by pid and creation time, so a reused pid does not count as running.
    remaining = [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert remaining == [], f"Ctrl-C left processes behind:\n{output.read_text()}"
    assert platform.process.returncode == 0, f"`penstock up` failed:\n{output.read_text()}"
