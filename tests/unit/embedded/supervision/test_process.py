"""Child processes: started with a mark, stopped with all descendants, and never confused with others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
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
from penstock.embedded.supervision.process_identity import ProcessIdentity, identify
from penstock.errors import ComponentFailed
from tests.deadlines import deadline_s
from tests.waiting import wait_until

IGNORE_SIGTERM = (
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
)


def test_a_process_with_a_reused_pid_is_never_stopped() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            assert not stop_orphan(ProcessIdentity(process.pid, "another-boot/12345"), signal.SIGTERM, 1)
            assert process.poll() is None
        finally:
            process.kill()


def test_an_orphan_that_ignores_its_signal_is_killed_after_the_timeout() -> None:
    with subprocess.Popen([sys.executable, "-c", IGNORE_SIGTERM], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        identity = identify(process.pid)
        assert identity is not None
        assert stop_orphan(identity, signal.SIGTERM, 0.1)
        assert process.wait() == -signal.SIGKILL


def test_a_child_gets_no_settings_but_those_of_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", "pk_secret")
    monkeypatch.setenv("PENSTOCK_ENCRYPTION_KEYS", "k1:secret")
    command = Command(("env",), cwd=tmp_path, env={"PENSTOCK_PORT": "7480"})
    child = spawn(command, tmp_path / "log", process_mark(tmp_path, "env"))
    child.process.wait(deadline_s(10))
    names = {line.partition("=")[0] for line in (tmp_path / "log").read_text().splitlines()}
    assert {name for name in names if name.startswith("PENSTOCK_")} == {"PENSTOCK_PORT"}
    assert "PATH" in names


def test_stopping_a_child_ends_its_own_children_too(tmp_path: Path) -> None:
    mark = process_mark(tmp_path, "family")
    script = "sleep 60 & setsid sleep 60 & wait"
    child = spawn(Command(("sh", "-c", script), cwd=tmp_path), tmp_path / "log", mark)
    wait_until(lambda: len(find_marked_processes(mark)) == 3, 5, "the child and its two children run")
    assert stop(child, 5)
    assert find_marked_processes(mark) == []
    assert stop(child, 5), "stopping twice is allowed"


def test_marked_processes_of_another_home_are_not_killed(tmp_path: Path) -> None:
    mark = process_mark(tmp_path / "a", "broker")
    child = spawn(Command(("sleep", "60"), cwd=tmp_path), tmp_path / "log", mark)
    try:
        assert kill_marked_processes(process_mark(tmp_path / "b", "broker")) == 0
        assert child.exit_code is None
    finally:
        stop(child, 5)


def test_a_marked_process_that_ends_during_the_search_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = process_mark(tmp_path, "short")
    child = spawn(Command(("sleep", "60"), cwd=tmp_path), tmp_path / "log", mark)
    read_environment = psutil.Process.environ

    def read_environment_and_end(process: psutil.Process) -> dict[str, str]:
        environment = read_environment(process)
        if process.pid == child.process.pid:
            stop(child, 5)
        return environment

    monkeypatch.setattr(psutil.Process, "environ", read_environment_and_end)
    assert kill_marked_processes(mark) == 0
    assert child.exit_code is not None


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux signals a child when its parent dies"
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
        assert identity.is_alive
        parent.kill()
    wait_until(lambda: not identity.is_alive, 5, "the child dies with its parent")


def test_the_error_for_a_missing_program_names_it(tmp_path: Path) -> None:
    with pytest.raises(ComponentFailed, match=r"Cannot run /no/such/program: No such file"):
        spawn(Command(("/no/such/program",), cwd=tmp_path), tmp_path / "log", "mark")


def test_output_contains_only_that_of_this_child(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("No space left on device\n")
    child = spawn(Command(("sh", "-c", "echo mine"), cwd=tmp_path), log, "mark")
    child.process.wait()
    assert child.read_output() == "mine\n"
    os.truncate(log, 0)
    assert child.read_output() == ""
