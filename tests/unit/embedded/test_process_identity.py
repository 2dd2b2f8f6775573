"""A pid is only ever ours together with the moment its process began."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.embedded.supervision.process import (
    Command,
    find_marked_processes,
    kill_marked_processes,
    process_mark,
    spawn,
    stop,
    stop_orphan,
)
from penstock.embedded.supervision.process_identity import (
    ProcessIdentity,
    identify,
    read_pid_file,
    write_pid_file,
)
from penstock.errors import ComponentFailed
from tests.waiting import wait_until


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_a_pid_file_remembers_who_it_was(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    identity = identify(sleeper.pid)
    assert identity is not None
    write_pid_file(tmp_path / "part.pid", identity)
    assert read_pid_file(tmp_path / "part.pid") == identity
    assert identity.alive


def test_a_reused_pid_is_never_killed(sleeper: subprocess.Popen[bytes]) -> None:
    earlier = ProcessIdentity(sleeper.pid, "some other boot/12345")
    assert not earlier.alive
    assert not stop_orphan(earlier, signal.SIGTERM, 1)
    assert sleeper.poll() is None


def test_a_zombie_counts_as_gone(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identify(sleeper.pid)
    assert identity is not None
    sleeper.send_signal(signal.SIGKILL)
    wait_until(lambda: not identity.alive, 5, "the killed process is gone though nobody waited for it")


@pytest.mark.parametrize("content", ["", "{", '{"pid": 1}', "[]", '{"pid": "x", "began": ""}'])
def test_a_pid_file_cut_short_by_a_crash_names_nobody(tmp_path: Path, content: str) -> None:
    path = tmp_path / "part.pid"
    path.write_text(content)
    assert read_pid_file(path) is None


def test_a_stray_that_ignores_its_signal_is_killed_after_the_deadline(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        identity = identify(process.pid)
        assert identity is not None
        assert stop_orphan(identity, signal.SIGTERM, 0.1)
        assert process.wait() == -signal.SIGKILL


def test_stopping_a_child_ends_its_own_children_too(tmp_path: Path) -> None:
    mark = process_mark(tmp_path, "family")
    script = "sleep 60 & setsid sleep 60 & wait"
    child = spawn(Command(("sh", "-c", script), cwd=tmp_path), tmp_path / "log", mark)
    wait_until(lambda: len(find_marked_processes(mark)) == 3, 5, "the child and its two children run")
    assert stop(child, 5)
    assert find_marked_processes(mark) == []
    assert stop(child, 5), "stopping twice is allowed"


def test_leftovers_of_another_home_are_not_touched(tmp_path: Path) -> None:
    child = spawn(Command(("sleep", "60"), cwd=tmp_path), tmp_path / "log", process_mark(tmp_path / "a", "part"))
    try:
        assert kill_marked_processes(process_mark(tmp_path / "b", "part")) == 0
        assert child.exit_code is None
    finally:
        stop(child, 5)


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux tells a child of its parent's death"
)
def test_a_child_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    code = f"""
import time
from pathlib import Path
from penstock.embedded.supervision.process import Command, spawn
child = spawn(Command(("sleep", "60"), cwd=Path("/")), Path({str(tmp_path / "log")!r}), "mark")
print(child.identity.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        identity = identify(int(parent.stdout.readline()))
        assert identity is not None
        assert identity.alive
        parent.kill()
    wait_until(lambda: not identity.alive, 5, "the child follows its parent")


def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ComponentFailed, match=r"/no/such/program cannot be run: No such file"):
        spawn(Command(("/no/such/program",), cwd=tmp_path), tmp_path / "log", "mark")


def test_output_is_that_of_this_child_only(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("No space left on device\n")
    child = spawn(Command(("sh", "-c", "echo mine"), cwd=tmp_path), log, "mark")
    child.process.wait()
    assert child.output() == "mine\n"
    os.truncate(log, 0)
    assert child.output() == ""
