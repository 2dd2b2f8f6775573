"""A process is identified by its pid and its start time."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.embedded.supervision.process_identity import (
    ProcessIdentity,
    identify,
    read_pid_file,
    write_pid_file,
)
from tests.waiting import wait_until


@pytest.fixture
def sleeping_process() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_a_pid_file_identifies_its_process(tmp_path: Path, sleeping_process: subprocess.Popen[bytes]) -> None:
    identity = identify(sleeping_process.pid)
    assert identity is not None
    write_pid_file(tmp_path / "broker.pid", identity)
    assert read_pid_file(tmp_path / "broker.pid") == identity
    assert identity.is_alive


def test_a_process_with_a_reused_pid_is_another_process(sleeping_process: subprocess.Popen[bytes]) -> None:
    assert not ProcessIdentity(sleeping_process.pid, "another-boot/12345").is_alive


def test_a_zombie_is_not_alive(sleeping_process: subprocess.Popen[bytes]) -> None:
    identity = identify(sleeping_process.pid)
    assert identity is not None
    sleeping_process.send_signal(signal.SIGKILL)
    wait_until(lambda: not identity.is_alive, 5, "the killed process is gone although no parent reaped it")


@pytest.mark.parametrize("content", ["", "{", '{"pid": 1}', "[]", '{"pid": "x", "began": ""}'])
def test_a_truncated_pid_file_identifies_no_process(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broker.pid"
    path.write_text(content)
    assert read_pid_file(path) is None


def test_a_pid_file_keeps_its_format(tmp_path: Path) -> None:
    path = tmp_path / "broker.pid"
    path.write_text('{"pid": 7, "began": "boot/1"}')
    assert read_pid_file(path) == ProcessIdentity(7, "boot/1")
