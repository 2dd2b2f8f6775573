"""`penstock config`: values, sources, groups, search, and the settings of a running platform."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.config import GROUP_STARTS, Settings, group_settings
from penstock.embedded.supervision.process_identity import identify
from penstock.embedded.supervision.state import PlatformState, write_state
from penstock.errors import InvalidRequest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    (tmp_path / "run").mkdir()
    return tmp_path


def run_platform_with(home: Path, **settings: object) -> None:
    """Write the state file of a platform with these settings that this process supervises."""
    supervisor = identify(os.getpid())
    assert supervisor is not None
    now = time.time()
    write_state(home, PlatformState(supervisor, str(home), "http://127.0.0.1:8123", now, now, (), settings))


def config_json(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["config", *arguments, "--json"])
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def config_text(*arguments: str, columns: int = 80) -> str:
    return CliRunner().invoke(app, ["config", *arguments], env={"COLUMNS": str(columns)}).stdout


def test_config_shows_the_source_of_each_value(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "settings.toml").write_text('port = 7999\nredis_url = "redis://:hush@r:1/0"\n')
    monkeypatch.setenv("PENSTOCK_CONFIG", str(home / "settings.toml"))
    monkeypatch.setenv("PENSTOCK_WORKERS", "3")
    settings = config_json()
    assert settings["port"] == {"value": 7999, "from": str(home / "settings.toml"), "group": "Broker"}
    assert settings["workers"] == {"value": 3, "from": "PENSTOCK_WORKERS", "group": "Broker"}
    assert settings["host"] == {"value": "127.0.0.1", "from": "default", "group": "Broker"}
    assert settings["redis_url"]["value"] == "redis://:***@r:1/0"


def test_the_text_masks_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_POSTGRES_URL", "postgresql://me:hush@db/app")
    text = config_text()
    assert "hush" not in text
    assert "postgresql://me:***@db/app\n    from PENSTOCK_POSTGRES_URL: URL of your PostgreSQL" in text


def test_the_settings_are_grouped_and_fit_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", "/srv/penstock")
    lines = config_text().splitlines()
    assert [line for line in lines if line and not line.startswith(" ")] == list(GROUP_STARTS.values())
    assert max(map(cell_len, lines)) <= 80
    assert [name for names in group_settings().values() for name in names] == list(Settings.model_fields)


def test_a_search_shows_the_settings_that_have_the_text_in_name_group_or_meaning() -> None:
    assert set(config_json("JOURNAL")) == {"journal_dir", "journal_mb"}
    assert set(config_json("PENSTOCK_LOAD_POP")) == {"load_pop"}
    assert "log_level" in config_json("log level")
    result = CliRunner().invoke(app, ["config", "no such setting"])
    assert isinstance(result.exception, InvalidRequest)
    assert "`penstock config` lists all settings" in result.exception.detail


def test_the_settings_of_a_running_platform_are_shown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_platform_with(home, port=8123, workers=2, postgres_url="postgresql://127.0.0.1:8124/penstock")
    monkeypatch.setenv("PENSTOCK_WORKERS", "3")
    settings = config_json()
    assert settings["port"] == {"value": 8123, "from": "running platform", "group": "Broker"}
    assert settings["postgres_url"]["value"] == "postgresql://127.0.0.1:8124/penstock"
    assert settings["workers"]["value"] == 2
    assert settings["host"]["from"] == "default"
    hint = "PENSTOCK_WORKERS has another value here than in the running platform. Restart it to apply them."
    assert hint in " ".join(config_text().split())
