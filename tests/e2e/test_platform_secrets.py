"""The passwords and keys of a platform are in its home, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest

from tests.whole_platform import RunningPlatform

KEPT_IN = {"password", "encryption-key", "valkey/valkey.conf"}
"""The files of the home that hold secrets, for the user that runs the platform alone."""


@pytest.fixture
def secrets(platform: RunningPlatform) -> list[str]:
    password = (platform.home / "password").read_text().strip()
    key = (platform.home / "encryption-key").read_text().strip().rpartition(":")[2]
    assert len(password) >= 32
    assert len(key) >= 40
    return [password, key]


def test_logs_and_state_files_have_no_secret(platform: RunningPlatform, secrets: list[str]) -> None:
    files = [
        file for folder in ("logs", "run") for file in (platform.home / folder).rglob("*") if file.is_file()
    ]
    assert {"broker.log", "pipeline.log", "supervisor.log", "state.json"} <= {file.name for file in files}
    for file in files:
        text = file.read_text(errors="replace")
        assert not any(secret in text for secret in secrets), file


def test_files_with_secrets_are_readable_by_their_owner_alone(platform: RunningPlatform) -> None:
    for name in KEPT_IN:
        file = platform.home / name
        directories = [parent for parent in file.parents if parent.is_relative_to(platform.home)]
        is_private = file.stat().st_mode & 0o077 == 0
        assert is_private or any(directory.stat().st_mode & 0o077 == 0 for directory in directories), name


def test_process_lists_have_no_secret(platform: RunningPlatform, secrets: list[str]) -> None:
    processes = platform.list_processes()
    assert any("java" in process.name() for process in processes)
    for process in processes:
        try:
            command_line = " ".join(process.cmdline())
            environment_mode = Path(f"/proc/{process.pid}/environ").stat().st_mode
        except (psutil.NoSuchProcess, FileNotFoundError):
            continue  # a connection of PostgreSQL or a Python worker of Spark that has ended
        assert not any(secret in command_line for secret in secrets)
        assert environment_mode & 0o077 == 0, command_line


@pytest.mark.parametrize("command", ["config", "config --json", "status --json", "pipeline status --json"])
def test_commands_print_no_secret(platform: RunningPlatform, secrets: list[str], command: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *command.split()],
        env={**os.environ, "PENSTOCK_HOME": str(platform.home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout
    assert not any(secret in result.stdout + result.stderr for secret in secrets)


def test_responses_have_no_secret(platform: RunningPlatform, secrets: list[str]) -> None:
    for path in ("/health", "/metrics", "/api/v1/status", "/api/v1/worker-health"):
        response = httpx.get(f"{platform.url}{path}", timeout=30)
        assert not any(secret in response.text for secret in secrets), path
