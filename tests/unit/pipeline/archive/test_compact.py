"""Two directories change places, and what a killed compaction left is put right."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from redis import Redis

from penstock.definitions import QUEUE
from penstock.errors import ConfigError
from penstock.pipeline.archive.compact import Compaction, exchange
from penstock.pipeline.archive.event_archive import Archive


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    return tmp_path / "one", tmp_path / "other"


@pytest.mark.parametrize("able", [True, False], ids=["in one step", "in three"])
def test_directories_change_places(
    pair: tuple[Path, Path], able: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not able:
        monkeypatch.setattr(ctypes, "CDLL", lambda *arguments, **named: object())
    exchange(*pair)
    assert [(place / "file").read_text() for place in pair] == ["other", "one"]
    assert len(list(pair[0].parent.iterdir())) == 2


def test_a_day_that_a_killed_run_had_put_aside_comes_back(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path), QUEUE)
    place = Path(archive.place)
    for name in (".old-day=2026-01-01", ".old-day=2026-01-02", "day=2026-01-02", ".new-day=2026-01-03"):
        (place / name).mkdir(parents=True)
    (place / ".old-day=2026-01-01" / "mine").touch()
    Compaction(archive, Redis())._tidy()
    assert sorted(path.name for path in place.iterdir()) == ["day=2026-01-01", "day=2026-01-02"]
    assert (place / "day=2026-01-01" / "mine").exists()


def test_an_archive_that_is_no_directory_is_not_made_compact() -> None:
    archive = Archive("s3://events?region=eu-west-1", QUEUE)
    with pytest.raises(ConfigError, match="only an archive in a directory"):
        Compaction(archive, Redis())
