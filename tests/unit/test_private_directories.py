"""Directories that other users of the machine cannot read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.journal.push_journal import Journal, journal_directory
from penstock.broker.self_metrics.worker_slot import WorkerSlot, slots_directory
from penstock.config import Settings
from penstock.embedded.servers.home_secrets import ensure_password
from penstock.embedded.supervision.supervisor import HomeLock
from penstock.pipeline.checkpoint import CheckpointLock, checkpoint_path
from penstock.private_directories import create_private_directory, make_private

HOME_MODE = 0o711 if os.geteuid() == 0 else 0o700


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    previous = os.umask(0)
    yield
    os.umask(previous)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_home_and_its_directories_are_private(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    settings = Settings(home=home)
    HomeLock(home).close()
    Journal(journal_directory(settings), 1 << 20)
    CheckpointLock(checkpoint_path(settings)).close()
    WorkerSlot(slots_directory(settings)).claim()
    assert mode_of(home) == HOME_MODE
    modes = {path.relative_to(home): mode_of(path) for path in home.rglob("*") if path.is_dir()}
    assert {"journal", "pipeline", "run", "logs"} <= {path.parts[0] for path in modes}
    assert set(modes.values()) == {0o700}, modes


def test_a_home_that_the_password_creates_is_private(tmp_path: Path) -> None:
    ensure_password(tmp_path / "home")
    assert mode_of(tmp_path / "home") == HOME_MODE


def test_missing_parents_are_private_and_existing_ones_unchanged(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    create_private_directory(tmp_path / "open" / "a" / "b")
    create_private_directory(tmp_path / "open")
    assert [mode_of(tmp_path / path) for path in ("open", "open/a", "open/a/b")] == [0o755, 0o700, 0o700]


def test_a_directory_of_an_earlier_version_is_made_private(tmp_path: Path) -> None:
    (tmp_path / "pipeline").mkdir(mode=0o755)
    make_private(tmp_path / "pipeline")
    assert mode_of(tmp_path / "pipeline") == 0o700
