"""The Compose file and the Containerfile: valid for their tools, with settings that Penstock accepts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.config import Settings, load_settings
from penstock.listen_address import check_listen_address
from tests.unit.deploy.commands import resolve_command

ROOT = Path(__file__).parents[3]
COMPOSE = ROOT / "deploy" / "compose" / "compose.yaml"
CONTAINERFILE = ROOT / "Containerfile"
HADOLINT = Path(sys.executable).with_name("hadolint")
VALUES = {
    "POSTGRES_PASSWORD": "p1",
    "VALKEY_PASSWORD": "p2",
    "CLICKHOUSE_PASSWORD": "p3",
    "PENSTOCK_ENCRYPTION_KEYS": f"2026:{'A' * 43}=",
}
ROLES = ("migrate", "broker", "pipeline", "alerts")


def interpolate(value: Any) -> Any:
    """Replace `${NAME:-default}` and `${NAME:?message}` in all texts of a document, as Compose does."""
    if isinstance(value, dict):
        return {name: interpolate(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [interpolate(inner) for inner in value]
    if not isinstance(value, str):
        return value
    pattern = re.compile(r"\$\{(\w+)(?::-([^}]*)|:\?[^}]*)?\}")
    return pattern.sub(lambda match: VALUES.get(match[1], match[2] or ""), value)


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    document: dict[str, Any] = interpolate(yaml.safe_load(COMPOSE.read_text()))
    services: dict[str, dict[str, Any]] = document["services"]
    return services


def test_the_compose_specification_accepts_the_file() -> None:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        str(COMPOSE),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_a_command_and_valid_settings(services: dict[str, dict[str, Any]], role: str) -> None:
    service = services[role]
    resolve_command(service["command"])
    settings = load_settings({"PENSTOCK_HOST": "0.0.0.0", **service["environment"]})
    check_listen_address(settings)
    assert settings.postgres_url == "postgresql://penstock:p1@postgres:5432/penstock"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    written = {mount.split(":")[0] for mount in service["tmpfs"]}
    written |= {volume.split(":")[1] for volume in service.get("volumes", [])}
    assert written == {"/tmp", "/var/lib/penstock"}


def test_roles_start_after_the_migration_and_stop_in_time(services: dict[str, dict[str, Any]]) -> None:
    for role in ROLES[1:]:
        dependencies = services[role]["depends_on"]
        assert dependencies["migrate"] == {"condition": "service_completed_successfully"}
        assert "test" in services[role].get("healthcheck", {"test": "of the image"})
    for name, dependency in services["migrate"]["depends_on"].items():
        assert dependency == {"condition": "service_healthy"}
        assert services[name]["healthcheck"]["test"]
    drain_s = load_settings(services["broker"]["environment"]).drain_s
    assert int(services["broker"]["stop_grace_period"].removesuffix("s")) >= drain_s + 25


def test_the_file_names_every_secret_that_it_needs() -> None:
    example = (COMPOSE.parent / "env.example").read_text()
    required = re.findall(r"\$\{(\w+):\?", COMPOSE.read_text())
    assert set(required) == set(VALUES)
    assert all(f"\n{name}=" in example for name in required)


@pytest.mark.skipif(not HADOLINT.exists(), reason="no wheel of hadolint for this platform")
def test_hadolint_finds_nothing_in_the_containerfile() -> None:
    result = subprocess.run([HADOLINT, CONTAINERFILE], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_the_image_sets_valid_settings_and_does_not_run_as_root() -> None:
    text = CONTAINERFILE.read_text()
    settings = dict(re.findall(r"(PENSTOCK_\w+)=(\S+)", text))
    loaded: Settings = load_settings(settings)
    assert str(loaded.home) == "/var/lib/penstock"
    final_stage = text.rsplit("\nFROM ", 1)[1]
    assert re.findall(r"^USER (\S+)$", final_stage, re.MULTILINE) == ["10001:10001"]
    resolve_command(["serve"])


def test_both_builders_ignore_the_same_files() -> None:
    assert (ROOT / ".containerignore").read_bytes() == (ROOT / "Containerfile.dockerignore").read_bytes()
