"""Which components run here, which are external, and the environment of child processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.config import Settings, load_settings
from penstock.embedded.servers.external import ExternalServer
from penstock.embedded.servers.home_secrets import ensure_encryption_keys
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.supervision.component import Program
from penstock.embedded.supervision.platform import (
    Platform,
    build_environment,
    build_platform,
    resolve_server_urls,
)
from penstock.embedded.supervision.process_identity import identify
from penstock.embedded.supervision.service_components import PenstockService
from penstock.embedded.supervision.state import ComponentState, PlatformState, RunState, write_state
from penstock.errors import ConfigError


def build_settings(home: Path, **variables: str) -> Settings:
    return load_settings({"PENSTOCK_HOME": str(home), "PENSTOCK_PORT": str(any_free_port()), **variables})


def program_names(platform: Platform) -> list[str]:
    return [component.name for component in platform.components if isinstance(component, Program)]


def test_all_servers_are_embedded_by_default(tmp_path: Path) -> None:
    platform = build_platform(build_settings(tmp_path))
    assert program_names(platform) == ["postgres", "valkey", "clickhouse", "broker", "pipeline", "alerts"]
    assert platform.settings.postgres_url.startswith("postgresql://penstock:")


def test_a_server_given_by_url_is_external_and_not_started(tmp_path: Path) -> None:
    variables = {
        "PENSTOCK_POSTGRES_URL": "postgresql://me:secret@db:5432/app",
        "PENSTOCK_SPARK_MASTER": "spark://cluster:7077",
    }
    platform = build_platform(build_settings(tmp_path, **variables), demo=True)
    external = {
        component.name: component.address
        for component in platform.components
        if isinstance(component, ExternalServer)
    }
    assert external == {"postgres": "postgresql://me:***@db:5432/app", "spark": "spark://cluster:7077"}
    assert program_names(platform) == ["valkey", "clickhouse", "broker", "pipeline", "alerts", "demo"]
    assert platform.settings.postgres_url == variables["PENSTOCK_POSTGRES_URL"]


def test_child_processes_read_exactly_the_settings_in_force(tmp_path: Path) -> None:
    settings = build_settings(tmp_path, PENSTOCK_METRICS_ENABLED="false", PENSTOCK_REDIS_URL="redis://r:1/0")
    environment = build_environment(settings)
    assert load_settings(environment) == settings
    assert "127.0.0.1" in environment["NO_PROXY"]


def test_only_the_demo_gets_the_token_of_this_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", "pk_secret")
    platform = build_platform(build_settings(tmp_path), demo=True)
    programs = [component for component in platform.components if isinstance(component, PenstockService)]
    names = [program.name for program in programs if "PENSTOCK_TOKEN" in program.command().env]
    assert names == ["demo"]


def test_a_missing_server_url_without_a_running_platform_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"PENSTOCK_REDIS_URL is not set.*penstock up"):
        resolve_server_urls(build_settings(tmp_path), "redis_url")
    with_redis = build_settings(tmp_path, PENSTOCK_REDIS_URL="redis://r:1/0")
    assert resolve_server_urls(with_redis, "redis_url").redis_url == "redis://r:1/0"


def test_a_command_beside_the_embedded_postgres_has_the_key_of_its_home(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    supervisor = identify(os.getpid())
    assert supervisor is not None
    postgres = ComponentState("postgres", RunState.UP, "postgresql://127.0.0.1:1/penstock")
    write_state(
        tmp_path, PlatformState(supervisor, str(tmp_path), "http://127.0.0.1:1", 0, 0, (postgres,), {})
    )
    resolved = resolve_server_urls(build_settings(tmp_path), "postgres_url")
    assert resolved.encryption_keys == ensure_encryption_keys(tmp_path)


def test_the_operators_own_redis_is_called_redis(tmp_path: Path) -> None:
    settings = build_settings(tmp_path, PENSTOCK_REDIS_URL="redis://r:1/0")
    names = [component.name for component in build_platform(settings).components]
    assert "redis" in names
    assert "valkey" not in names


def test_a_command_without_the_url_of_the_platforms_own_redis_says_which_redis_it_is(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    supervisor = identify(os.getpid())
    assert supervisor is not None
    redis = ComponentState("redis", RunState.UP, "redis://:***@r:1/0", is_external=True)
    settings: dict[str, object] = {"redis_url": "redis://:***@r:1/0"}
    write_state(
        tmp_path, PlatformState(supervisor, str(tmp_path), "http://127.0.0.1:1", 0, 0, (redis,), settings)
    )
    with pytest.raises(ConfigError, match=r"your Redis at redis://:\*\*\*@r:1/0: set PENSTOCK_REDIS_URL"):
        resolve_server_urls(build_settings(tmp_path), "redis_url")
