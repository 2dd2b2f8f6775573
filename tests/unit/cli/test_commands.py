"""The command line: what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock import __version__
from penstock.cli.main import app
from penstock.cli.tables import duration
from penstock.embedded.supervision.process_identity import ProcessIdentity, identify
from penstock.embedded.supervision.state import ComponentState, PlatformState, State, write_state
from penstock.errors import ConfigError

runner = CliRunner()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    (tmp_path / "run").mkdir()
    (tmp_path / "logs").mkdir()
    return tmp_path


def a_platform(home: Path, *states: State, supervisor: ProcessIdentity | None = None) -> None:
    me = identify(os.getpid())
    assert me is not None
    rows = tuple(
        ComponentState(
            name=f"part{number}",
            state=state,
            address=f"http://127.0.0.1:{number}",
            pid=100 + number,
            up_since=time.time() - 60 if state is State.UP else None,
            restarts=number,
            last_failure=None if state is State.UP else "part was ended by SIGKILL",
        )
        for number, state in enumerate(states)
    )
    now = time.time()
    write_state(home, PlatformState(supervisor or me, str(home), "http://127.0.0.1:7480", now, now, rows))


def test_config_says_where_each_value_comes_from(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "settings.toml").write_text('port = 7999\nredis_url = "redis://:hush@r:1/0"\n')
    monkeypatch.setenv("PENSTOCK_CONFIG", str(home / "settings.toml"))
    monkeypatch.setenv("PENSTOCK_WORKERS", "3")
    shown = json.loads(runner.invoke(app, ["config", "--json"]).stdout)
    assert shown["port"] == {"value": 7999, "from": str(home / "settings.toml")}
    assert shown["workers"] == {"value": 3, "from": "PENSTOCK_WORKERS"}
    assert shown["host"] == {"value": "127.0.0.1", "from": "default"}
    assert shown["redis_url"]["value"] == "redis://:***@r:1/0"


def test_config_as_a_table_hides_passwords(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_POSTGRES_URL", "postgresql://me:hush@db/app")
    result = runner.invoke(app, ["config"], env={"COLUMNS": "200"})
    assert "hush" not in result.stdout
    assert "postgresql://me:***@db/app" in result.stdout
    assert "PENSTOCK_POSTGRES_URL" in result.stdout


def test_status_is_0_when_everything_is_up(home: Path) -> None:
    a_platform(home, State.UP, State.UP)
    result = runner.invoke(app, ["status"])
    assert result.exit_code == 0
    assert "part0" in result.stdout


def test_status_is_1_when_a_part_is_down_and_says_why(home: Path) -> None:
    a_platform(home, State.UP, State.DOWN)
    result = runner.invoke(app, ["status", "--json"])
    assert result.exit_code == 1
    part = json.loads(result.stdout)["parts"][1]
    assert (part["state"], part["lastFailure"], part["restarts"]) == ("down", "part was ended by SIGKILL", 1)


def test_status_does_not_believe_the_file_of_a_dead_supervisor(home: Path) -> None:
    a_platform(home, State.UP, supervisor=ProcessIdentity(os.getpid(), "another boot/1"))
    result = runner.invoke(app, ["status"])
    assert result.exit_code == 1
    assert "does not run" in result.stdout
    assert json.loads(runner.invoke(app, ["status", "--json"]).stdout)["running"] is False


def test_logs_shows_the_last_lines_of_a_part(home: Path) -> None:
    (home / "logs" / "broker.log").write_text("one\ntwo\nthree\n")
    assert runner.invoke(app, ["logs", "broker", "-n", "2"]).stdout == "two\nthree\n"


def test_logs_of_an_unknown_part_names_the_nearest(home: Path) -> None:
    (home / "logs" / "broker.log").touch()
    result = runner.invoke(app, ["logs", "brokr"])
    assert isinstance(result.exception, ConfigError)
    assert "did you mean broker?" in result.exception.detail


def test_version_is_printed() -> None:
    assert runner.invoke(app, ["version"]).stdout.strip() == __version__


def test_an_error_is_one_line_without_a_traceback_and_exit_code_2(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "config"],
        env={**os.environ, "PENSTOCK_PROT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["Unknown setting PENSTOCK_PROT. Did you mean PENSTOCK_PORT?"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.9, "59 s"), (61, "1 min"), (3 * 3600 + 120, "3 h 2 min"), (200_000, "2 d 7 h")],
)
def test_a_duration_is_told_as_a_person_would(seconds: float, words: str) -> None:
    assert duration(seconds) == words
