"""The whole platform as a user starts it: one process, its children, a home of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from penstock.embedded.servers.ports import any_free_port
from tests.waiting import wait_until

START_S = 180
STOP_S = 60


@dataclass(frozen=True, slots=True)
class Platform:
    url: str
    port: int
    home: Path
    process: subprocess.Popen[bytes]

    def push(self, queue: str, *payloads: object) -> None:
        items = [{"queue": queue, "payload": payload} for payload in payloads]
        response = httpx.post(f"{self.url}/api/v1/push", json={"items": items})
        assert response.status_code == 201, response.text

    def enqueue(self, queue: str, *payloads: object, limit: int) -> None:
        """Tasks for a run queue, of which at most `limit` may run at once."""
        run_queue = f"{self.url}/api/v1/run-queues/{queue}"
        httpx.put(f"{run_queue}/limits", json={"concurrency": limit}).raise_for_status()
        tasks = {"tasks": [{"payload": payload} for payload in payloads]}
        httpx.post(f"{run_queue}/tasks", json=tasks).raise_for_status()

    def enqueue_later(self, queue: str, *payloads: int) -> None:
        """Tasks that become eligible in an hour."""
        tasks = {"tasks": [{"payload": payload, "delayMs": 3_600_000} for payload in payloads]}
        httpx.post(f"{self.url}/api/v1/run-queues/{queue}/tasks", json=tasks).raise_for_status()

    def pop(self, queue: str) -> list[dict[str, Any]]:
        response = httpx.get(f"{self.url}/api/v1/pop/queue/{queue}")
        messages: list[dict[str, Any]] = response.json()["messages"] if response.status_code == 200 else []
        return messages

    def ack(self, message: dict[str, Any]) -> None:
        names = ("transactionId", "partitionId", "leaseId")
        body = {name: message[name] for name in names} | {"status": "completed"}
        response = httpx.post(f"{self.url}/api/v1/ack", json=body)
        assert response.status_code == 200, response.text
        assert response.json()[0]["success"] is True, response.text

    def points(self, queue: str) -> list[dict[str, Any]]:
        """The metrics of the last five minutes."""
        response = httpx.get(f"{self.url}/api/v1/queues/{queue}/metrics", params={"period": "5m"})
        assert response.status_code == 200, response.text
        points: list[dict[str, Any]] = response.json()["timeseries"]
        return points

    def counted(self, queue: str, counter: str) -> int:
        return sum(point["throughput"][counter] for point in self.points(queue))

    @property
    def healthy(self) -> bool:
        return httpx.get(f"{self.url}/health").status_code == 200

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def processes(self) -> list[psutil.Process]:
        """The platform's own process and everything it started."""
        leader = psutil.Process(self.process.pid)
        return [leader, *leader.children(recursive=True)]


@contextmanager
def running_platform() -> Iterator[Platform]:
    """Start it, wait until it is healthy, stop it as Ctrl-C would, and insist that nothing is left.

    Its directory, with data and logs, is kept when something failed.
    """
    directory = Path(tempfile.mkdtemp(prefix="penstock-e2e-"))
    directory.chmod(0o755)  # as root, PostgreSQL runs as another user and must pass through
    home, output, port = directory / "home", directory / "up.log", any_free_port()
    with output.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.main", "up"],
            env={**os.environ, "PENSTOCK_HOME": str(home), "PENSTOCK_PORT": str(port)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    platform = Platform(f"http://127.0.0.1:{port}", port, home, process)
    try:
        wait_until(lambda: platform.ended or platform.healthy, START_S, "the platform starts")
        assert not platform.ended, "`penstock up` ended"
        yield platform
    except AssertionError as failure:
        failure.add_note(f"{output} says:\n{output.read_text()}")
        raise
    finally:
        stop(platform, output)
    shutil.rmtree(directory)


def stop(platform: Platform, output: Path) -> None:
    everything = [] if platform.ended else platform.processes()
    platform.process.send_signal(signal.SIGINT)
    try:
        platform.process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        platform.process.kill()
        raise
    # A process is known by pid and creation time, so a pid that was given to somebody else does not count.
    left = [p for p in everything if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert left == [], f"Ctrl-C left processes behind:\n{output.read_text()}"
    assert platform.process.returncode == 0, f"`penstock up` failed at the end:\n{output.read_text()}"
