"""Migrations in a process of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.supervision.migration_run import run_migrations
from penstock.errors import ComponentFailed
from penstock.private_directories import make_private


@pytest.fixture
def home(tmp_path: Path) -> Path:
    make_private(tmp_path / "logs")  # the supervisor does it before anything starts
    return tmp_path


def test_a_failed_migration_is_one_line_that_says_why(home: Path) -> None:
    port = any_free_port()
    url = f"postgresql://user:secret@127.0.0.1:{port}/penstock"
    with pytest.raises(ComponentFailed) as failure:
        run_migrations(home, {"PENSTOCK_POSTGRES_URL": url})
    assert str(port) in failure.value.detail
    assert "\n" not in failure.value.detail
    assert "secret" not in (home / "logs" / "migrations.log").read_text() + failure.value.detail


def test_a_process_that_cannot_start_names_its_exit_code(home: Path) -> None:
    with pytest.raises(ComponentFailed, match="migrations exited with code 1"):
        run_migrations(home, {"PYTHONHOME": str(home)})
