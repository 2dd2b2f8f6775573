"""Which parts are run here and which are yours, and what the children are told."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.config import Settings, load_settings
from penstock.embedded.servers.external import ExternalServer
from penstock.embedded.servers.home_secrets import ensure_password
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.supervision.component import Program
from penstock.embedded.supervision.platform import build_environment, build_platform, resolve_server_urls
from penstock.errors import ConfigError


def settings_for(home: Path, **values: str) -> Settings:
    return load_settings({"PENSTOCK_HOME": str(home), "PENSTOCK_PORT": str(any_free_port()), **values})


def nothing_to_migrate(settings: Settings) -> list[str]:
    return []


def test_everything_is_embedded_unless_given(tmp_path: Path) -> None:
    platform = build_platform(settings_for(tmp_path), nothing_to_migrate)
    programs = [part.name for part in platform.parts if isinstance(part, Program)]
    assert programs == ["postgres", "valkey", "clickhouse", "broker", "pipeline"]
    assert platform.settings.postgres_url.startswith("postgresql://penstock:")


def test_a_given_server_is_yours_and_only_asked_how_it_is(tmp_path: Path) -> None:
    given = {
        "PENSTOCK_POSTGRES_URL": "postgresql://me:secret@db:5432/app",
        "PENSTOCK_SPARK_MASTER": "spark://cluster:7077",
    }
    platform = build_platform(settings_for(tmp_path, **given), nothing_to_migrate, demo=True)
    yours = {part.name: part.address for part in platform.parts if isinstance(part, ExternalServer)}
    assert yours == {"postgres": "postgresql://me:***@db:5432/app", "spark": "spark://cluster:7077"}
    assert [part.name for part in platform.parts if isinstance(part, Program)] == [
        *("valkey", "clickhouse", "broker", "pipeline", "demo")
    ]
    assert platform.settings.postgres_url == given["PENSTOCK_POSTGRES_URL"]


def test_children_read_back_exactly_the_settings_in_force(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, PENSTOCK_METRICS_ENABLED="false", PENSTOCK_REDIS_URL="redis://r:1/0")
    environment = build_environment(settings)
    assert load_settings(environment) == settings
    assert "127.0.0.1" in environment["NO_PROXY"]


def test_the_password_is_made_once_and_kept_private(tmp_path: Path) -> None:
    password = ensure_password(tmp_path / "home")
    assert len(password) >= 24
    assert ensure_password(tmp_path / "home") == password
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["password"]
    assert stat.S_IMODE((tmp_path / "home" / "password").stat().st_mode) == 0o600


def test_many_at_once_agree_on_the_password(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for turn in range(20):
            assert len(set(pool.map(ensure_password, [tmp_path / str(turn)] * 16))) == 1


def test_a_command_on_its_own_says_how_to_get_a_server(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"PENSTOCK_REDIS_URL is not set.*penstock up"):
        resolve_server_urls(settings_for(tmp_path), "redis_url")
    given = settings_for(tmp_path, PENSTOCK_REDIS_URL="redis://r:1/0")
    assert resolve_server_urls(given, "redis_url") is not None
