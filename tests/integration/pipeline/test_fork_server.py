"""Spark's Python processes are forked from the driver, and end with their launchers and with the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from penstock.pipeline.fork_server import SOURCE_RUNNER
from tests.deadlines import deadline_s
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the fork server needs Linux")

DRIVER = """
import json, os, sys
from pathlib import Path
from penstock.pipeline.fork_server import start_fork_server
from penstock.pipeline.worker_launcher import write_launcher

def plan():
    process = {"variable": os.environ.get("VARIABLE"), "directory": os.getcwd(), "argv": sys.argv}
    print(json.dumps({"pid": os.getpid(), "parent": os.getppid()} | process), flush=True)
    answer = sys.stdin.readline()
    print(answer, file=sys.stderr)
    sys.exit(int(answer))

directory = Path(sys.argv[1])
server = start_fork_server(directory, plan)
print(server.pid if server else 0, write_launcher(directory, server), flush=True)
sys.stdin.read()
"""


class Driver:
    """A process with a fork server, which runs until its input ends."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        pid, launcher = self.process.stdout.readline().split()
        self.server_pid, self.launcher = int(pid), launcher

    def launch(self, directory: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.launcher, "-m", SOURCE_RUNNER],
            cwd=directory,
            env=os.environ | {"VARIABLE": "two words"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=deadline_s(10))


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(tmp_path)
    yield driver
    driver.end()


def test_a_fork_has_the_streams_environment_directory_and_exit_code_of_its_launcher(
    driver: Driver, tmp_path: Path
) -> None:
    with driver.launch(tmp_path) as launcher:
        assert launcher.stdout is not None
        forked = json.loads(launcher.stdout.readline())
        assert forked["parent"] == driver.server_pid
        assert (forked["variable"], forked["directory"]) == ("two words", str(tmp_path))
        assert forked["argv"] == [SOURCE_RUNNER]

        _, errors = launcher.communicate("7\n", timeout=deadline_s(10))
        assert errors.split() == ["7"]
        assert launcher.returncode == 7
    wait_until(lambda: not list(tmp_path.glob("exit-*")), deadline_s(10), "the pipe of the launcher remains")


def test_a_fork_ends_with_its_launcher_and_others_go_on(driver: Driver, tmp_path: Path) -> None:
    with driver.launch(tmp_path) as killed, driver.launch(tmp_path) as other:
        assert killed.stdout is not None
        assert other.stdout is not None
        forked = psutil.Process(json.loads(killed.stdout.readline())["pid"])
        other_pid = json.loads(other.stdout.readline())["pid"]
        killed.kill()
        wait_until(lambda: not forked.is_running(), deadline_s(10), "the fork runs without its launcher")
        assert psutil.pid_exists(other_pid)
        other.communicate("0\n", timeout=deadline_s(10))
        assert other.returncode == 0


def test_the_server_ends_with_the_driver(driver: Driver, tmp_path: Path) -> None:
    server = psutil.Process(driver.server_pid)
    driver.end()
    wait_until(lambda: not server.is_running(), deadline_s(10), "the server runs without the driver")


def test_a_launcher_starts_a_python_when_the_server_is_gone(driver: Driver, tmp_path: Path) -> None:
    server = psutil.Process(driver.server_pid)
    server.kill()
    wait_until(lambda: server.status() == psutil.STATUS_ZOMBIE, deadline_s(10), "the server still runs")
    with driver.launch(tmp_path) as launcher:
        _, errors = launcher.communicate(timeout=deadline_s(30))
        assert "PYTHON_WORKER_FACTORY_PORT" in errors  # which Spark would have set
