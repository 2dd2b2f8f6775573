"""Services that the supervisor forks run as processes that were started from nothing would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from penstock.embedded.supervision.process import command_words
from tests.deadlines import deadline_s
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the supervisor forks on Linux")

NO_TEXT = os.fsdecode(b"caf\xe9")
"""The value of a variable that is not UTF-8."""

SERVICE = """
import atexit, json, os, signal, sys, threading
from penstock.start_gate import wait_for_start

secret = sys.modules["__main__"].__dict__.get("PARENTS_VARIABLE")
facts = {"argv": sys.argv, "directory": os.getcwd(), "environment": dict(os.environ), "secret": secret}
facts["files"] = [name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
facts["group"] = os.getpgid(0) == os.getpid()
print(json.dumps(facts), flush=True)
wait_for_start()
print("started", flush=True)
atexit.register(print, "exit handler")
threading.Thread(target=lambda: (threading.main_thread().join(), print("thread")), daemon=False).start()
if sys.argv[1] == "pause":
    signal.pause()
sys.exit(int(sys.argv[1]))
"""

SUPERVISOR = """
import os, sys
from pathlib import Path
from penstock.embedded.supervision.process import Command, spawn, stop
from penstock.embedded.supervision.service_fork import fork_services

PARENTS_VARIABLE = "parent"
directory = Path(sys.argv[1])
lock = (directory / "lock").open("w")
fork = fork_services(["service"])["service"]
print(fork.pid, flush=True)
for line in sys.stdin:
    match line.split():
        case ["run", argument]:
            argv = (sys.executable, "-m", "forked_service", argument)
            command = Command(argv, directory, {"SETTING": "two words", "LARGE": "x" * 100_000}, waits=True)
            try:
                child = spawn(command, directory / "log", "the mark", fork)
            except BrokenPipeError:
                print("ended", fork.poll(), flush=True)
        case ["start"]:
            child.let_start()
        case ["wait"]:
            print(child.process.wait(60), flush=True)
        case ["stop"]:
            print(stop(child, 60), child.exit_code, flush=True)
        case ["discard"]:
            fork.discard()
            print(fork.poll(), flush=True)
"""


class SupervisorProcess:
    """A process that forks one service, and obeys commands."""

    def __init__(self, directory: Path) -> None:
        (directory / "forked_service.py").write_text(SERVICE)
        self.log = directory / "log"
        self.process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, str(directory)],
            env=os.environ | {"PYTHONPATH": str(directory), "PENSTOCK_PORT": "1", "INHERITED": NO_TEXT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.fork = psutil.Process(int(self.read_line()))

    def send(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def read_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def log_lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def wait_for_log(self, lines: int) -> list[str]:
        wait_until(lambda: len(self.log_lines()) >= lines, deadline_s(20), f"{lines} lines in the log")
        return self.log_lines()


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[SupervisorProcess]:
    supervisor = SupervisorProcess(tmp_path)
    yield supervisor
    supervisor.process.kill()
    supervisor.process.communicate(timeout=deadline_s(10))


def wait_for_end(process: psutil.Process) -> None:
    wait_until(lambda: not process.is_running(), deadline_s(10), "the fork ends")


def test_a_fork_has_only_the_arguments_files_and_variables_of_its_command(
    supervisor: SupervisorProcess, tmp_path: Path
) -> None:
    supervisor.send("run 7")
    facts = json.loads(supervisor.wait_for_log(1)[0])
    assert facts["argv"][1:] == ["7"]
    assert facts["directory"] == str(tmp_path)
    assert facts["secret"] is None, "the fork runs in the main module of its parent"
    assert facts["files"] == ["0", "1", "2"]
    assert facts["group"], "Ctrl-C in a terminal must not reach it"
    environment = facts["environment"]
    assert (environment["SETTING"], environment["INHERITED"]) == ("two words", NO_TEXT)
    assert environment["SUPERVISED_BY_PENSTOCK"] == "the mark"
    assert len(environment["LARGE"]) == 100_000, "more than fits into the pipe at once"
    assert "PENSTOCK_PORT" not in environment
    assert command_words(supervisor.fork) == [sys.executable, "-m", "forked_service", "7"]


def test_a_fork_waits_for_its_servers_and_ends_as_a_python_process_does(
    supervisor: SupervisorProcess,
) -> None:
    supervisor.send("run 7")
    assert len(supervisor.wait_for_log(1)) == 1
    supervisor.send("start")
    supervisor.send("wait")
    assert supervisor.read_line() == "7"
    assert supervisor.log_lines()[1:] == ["started", "thread", "exit handler"]


def test_a_fork_stops_on_the_signal_of_its_command(supervisor: SupervisorProcess) -> None:
    supervisor.send("run pause")
    supervisor.wait_for_log(1)
    supervisor.send("start")
    supervisor.wait_for_log(2)
    supervisor.send("stop")
    assert supervisor.read_line() == f"True {-signal.SIGTERM}"
    wait_for_end(supervisor.fork)


def test_a_fork_without_a_command_can_be_discarded(supervisor: SupervisorProcess) -> None:
    supervisor.send("discard")
    assert supervisor.read_line() == "0"
    wait_for_end(supervisor.fork)


def test_a_fork_that_was_killed_before_its_command_is_reported(supervisor: SupervisorProcess) -> None:
    supervisor.fork.kill()
    wait_until(lambda: supervisor.fork.status() == psutil.STATUS_ZOMBIE, deadline_s(10), "the fork is killed")
    supervisor.send("run 7")
    assert supervisor.read_line() == f"ended {-signal.SIGKILL}"
    wait_for_end(supervisor.fork)


@pytest.mark.parametrize("commands", [0, 1, 2], ids=["waiting", "loaded", "started"])
def test_a_fork_ends_when_the_supervisor_is_killed(supervisor: SupervisorProcess, commands: int) -> None:
    for number, command in enumerate(["run pause", "start"][:commands]):
        supervisor.send(command)
        supervisor.wait_for_log(number + 1)
    supervisor.process.kill()
    wait_for_end(supervisor.fork)
