"""Tests of swapping two directories, and of the cleanup after a killed compaction."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from redis import Redis

from penstock.definitions import QUEUE
from penstock.errors import ConfigError
from penstock.pipeline.archive.compact import Compaction, swap_directories
from penstock.pipeline.archive.event_archive import Archive


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    return tmp_path / "first", tmp_path / "second"


@pytest.mark.parametrize("is_atomic", [True, False], ids=["in one step", "in three"])
def test_directories_are_swapped(
    pair: tuple[Path, Path], is_atomic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_atomic:
        monkeypatch.setattr(ctypes, "CDLL", lambda *arguments, **options: object())
    swap_directories(*pair)
    assert [(directory / "file").read_text() for directory in pair] == ["second", "first"]
    assert len(list(pair[0].parent.iterdir())) == 2


def test_a_day_that_a_killed_run_had_moved_away_is_restored(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path), QUEUE)
    directory = Path(archive.directory)
    for name in (".old-day=2026-01-01", ".old-day=2026-01-02", "day=2026-01-02", ".new-day=2026-01-03"):
        (directory / name).mkdir(parents=True)
    (directory / ".old-day=2026-01-01" / "file").touch()
    Compaction(archive, Redis())._remove_leftovers()
    assert sorted(path.name for path in directory.iterdir()) == ["day=2026-01-01", "day=2026-01-02"]
    assert (directory / "day=2026-01-01" / "file").exists()


def test_an_archive_outside_the_local_disk_cannot_be_compacted() -> None:
    archive = Archive("s3://events?region=eu-west-1", QUEUE)
    with pytest.raises(ConfigError, match="Only an archive in a local directory"):
        Compaction(archive, Redis())
