"""`penstock up` and `penstock serve` on a port that they cannot use: one line that says why, and an exit."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.embedded.servers.ports import any_free_port, first_unprivileged_port
from tests.deadlines import deadline_s
from tests.waiting import wait_until

DROP_RIGHT = ["setpriv", "--bounding-set", "-net_bind_service", "--inh-caps", "-net_bind_service"]
"""Run a command as root without the right to listen on privileged ports."""


def run_command(command: str, port: int, home: Path, *prefix: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*prefix, sys.executable, "-m", "penstock.cli.main", command],
        env={**os.environ, "PENSTOCK_HOME": str(home), "PENSTOCK_PORT": str(port)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def listener() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Another program that listens on a port."""
    port = any_free_port()
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: is_listening(port), 60, "the program listens")
        yield process, port
    finally:
        process.kill()
        process.wait()


def is_listening(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=deadline_s(1)):
        return True


@pytest.mark.parametrize("command", ["up", "serve"])
def test_a_privileged_port_needs_root(command: str, tmp_path: Path) -> None:
    lowest = first_unprivileged_port()
    if lowest <= 80:
        pytest.skip("on this machine every user may listen on port 80")
    is_root = os.geteuid() == 0
    if is_root and shutil.which("setpriv") is None:
        pytest.skip("setpriv, which drops the rights of root, is not installed")
    result = run_command(command, 80, tmp_path, *(DROP_RIGHT if is_root else ()))
    assert result.stderr == (
        f"Port 80 needs root, like every port below {lowest}. Choose a port from {lowest} up, for example "
        f"PENSTOCK_PORT=7777 penstock {command}.\n"
    )
    assert result.returncode == 2


@pytest.mark.parametrize("command", ["up", "serve"])
def test_a_taken_port_names_the_process(
    command: str, listener: tuple[subprocess.Popen[bytes], int], tmp_path: Path
) -> None:
    process, port = listener
    result = run_command(command, port, tmp_path)
    assert result.stderr.startswith(
        f"Port {port} is already in use by pid {process.pid} ({sys.executable} -m "
    )
    assert result.stderr.endswith(f" penstock {command}.\n")
    assert result.stderr.count("\n") == 1
    assert result.returncode == 2
