"""The commands of `penstock` that need no server: their output and exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock import __version__
from penstock.cli.main import app
from penstock.cli.tables import format_duration
from penstock.embedded.supervision.process import MARK_VARIABLE
from penstock.embedded.supervision.process_identity import ProcessIdentity, identify
from penstock.embedded.supervision.state import ComponentState, PlatformState, RunState, write_state
from penstock.errors import ConfigError
from penstock.log_format import LINE_START

runner = CliRunner()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    (tmp_path / "run").mkdir()
    (tmp_path / "logs").mkdir()
    return tmp_path


def write_platform_state(home: Path, *states: RunState, supervisor: ProcessIdentity | None = None) -> None:
    own_identity = identify(os.getpid())
    assert own_identity is not None
    components = tuple(
        ComponentState(
            name=f"component{number}",
            state=state,
            address=f"http://127.0.0.1:{number}",
            pid=100 + number,
            up_since=time.time() - 60 if state is RunState.UP else None,
            restarts=number,
            last_failure=None if state is RunState.UP else "component was terminated by SIGKILL",
        )
        for number, state in enumerate(states)
    )
    now = time.time()
    url = "http://127.0.0.1:7480"
    write_state(home, PlatformState(supervisor or own_identity, str(home), url, now, now, components))


def test_status_exits_with_0_when_all_components_are_up(home: Path) -> None:
    write_platform_state(home, RunState.UP, RunState.UP)
    result = runner.invoke(app, ["status"])
    assert result.exit_code == 0
    assert "component0" in result.stdout


def test_status_exits_with_1_and_shows_the_reason_when_a_component_is_down(home: Path) -> None:
    write_platform_state(home, RunState.UP, RunState.DOWN)
    result = runner.invoke(app, ["status", "--json"])
    assert result.exit_code == 1
    component = json.loads(result.stdout)["parts"][1]
    assert (component["state"], component["restarts"], component["yours"]) == ("down", 1, False)
    assert component["lastFailure"] == "component was terminated by SIGKILL"


def test_status_ignores_the_state_file_of_a_dead_supervisor(home: Path) -> None:
    write_platform_state(home, RunState.UP, supervisor=ProcessIdentity(os.getpid(), "another boot/1"))
    result = runner.invoke(app, ["status"])
    assert result.exit_code == 1
    assert "does not run" in result.stdout
    assert json.loads(runner.invoke(app, ["status", "--json"]).stdout)["running"] is False


def test_logs_shows_the_last_lines_of_a_component(home: Path) -> None:
    (home / "logs" / "broker.log").write_text("one\ntwo\nthree\n")
    assert runner.invoke(app, ["logs", "broker", "-n", "2"]).stdout == "two\nthree\n"


def test_logs_of_an_unknown_component_suggests_a_similar_one(home: Path) -> None:
    (home / "logs" / "broker.log").touch()
    result = runner.invoke(app, ["logs", "brokr"])
    assert isinstance(result.exception, ConfigError)
    assert "Did you mean broker?" in result.exception.detail


@pytest.mark.parametrize("argument", ["version", "--version"])
def test_version_is_printed(argument: str) -> None:
    result = runner.invoke(app, [argument])
    assert (result.exit_code, result.stdout.strip()) == (0, __version__)


def test_without_a_command_the_help_shows_the_first_commands_of_a_newcomer() -> None:
    lines = runner.invoke(app, [], env={"COLUMNS": "80"}).output.splitlines()
    _, first, second = (index for index, line in enumerate(lines) if line.startswith("╭─"))
    assert "Start here" in lines[first]
    commands = [line[2:].split()[0] for line in lines[first + 1 : second] if line[2:3].isalpha()]
    assert commands == ["up", "status", "doctor", "top", "push", "pop", "ack", "queues"]


def test_an_error_is_one_line_without_a_traceback_and_exit_code_2(home: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "config"],
        env={**os.environ, "PENSTOCK_PROT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.splitlines() == ["Unknown setting PENSTOCK_PROT. Did you mean PENSTOCK_PORT?"]


def test_commands_start_without_the_packages_that_few_of_them_need() -> None:
    program = "import sys, penstock.cli.main; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    slow = {"asyncpg", "clickhouse_connect", "cryptography", "httpx", "pyspark", "redis", "textual"}
    assert slow & set(modules.stdout.split()) == set()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["logs", "broker", "-n", "x"], "The value must be a whole number, not 'x'."),
        (["pipeline", "rebuild", "--from", "x", "--to", "y"], "'x' is not a day such as 2026-01-31."),
        (["report", "capacity", "--source", "x"], "'x' is not one of 'tiers', 'archive'."),
    ],
)
def test_a_wrong_option_is_described_without_formats_and_texts_of_pydantic(
    arguments: list[str], text: str
) -> None:
    result = runner.invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert text in result.output


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (61, "1 min"), (3 * 3600 + 120, "3 h 2 min"), (200_000, "2 d 7 h")],
)
def test_a_duration_shows_its_two_largest_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_command_that_runs_as_a_component_logs_its_error(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "pipeline", "run"],
        env={**os.environ, "PENSTOCK_HOME": str(tmp_path), MARK_VARIABLE: "x#pipeline"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.fullmatch(rf"{LINE_START}PENSTOCK_REDIS_URL is not set, .*\n", result.stderr)
    assert " CRITICAL penstock.cli: " in result.stderr
    assert result.returncode == 2
