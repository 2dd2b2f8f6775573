"""`penstock doctor` with real servers and a stopped platform."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.durable.server_facts import read_server_facts
from penstock.warehouse.schema_migrations import migrate
from tests.certificates import create_certificate


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.setenv("PENSTOCK_PORT", str(port))
    return tmp_path


def run_doctor() -> tuple[int, dict[str, list[tuple[str, str]]]]:
    """Return the exit code and the level and text of each finding, by check."""
    result = CliRunner().invoke(app, ["doctor", "--json"])
    document: dict[str, Any] = json.loads(result.stdout)
    findings: dict[str, list[tuple[str, str]]] = {}
    for check in document["checks"]:
        findings.setdefault(check["check"], []).append((check["level"], check["text"]))
    return result.exit_code, findings


def test_a_stopped_platform_with_embedded_servers_has_no_problem(home: Path) -> None:
    exit_code, findings = run_doctor()
    assert exit_code in (0, 8)  # the disk or the memory of the machine may deserve a warning
    assert findings["platform"] == [("ok", f"Stopped: nothing runs on {home}. `penstock up` starts it.")]
    assert findings["postgres"][0][0] == "ok"
    table = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "80"}).stdout
    assert max(map(len, table.splitlines())) <= 80


def test_servers_of_the_operator_are_checked_while_the_platform_is_stopped(
    home: Path, database_url: str, redis_url: str, clickhouse_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse_url = f"{clickhouse_url.rstrip('/').rpartition('/')[0]}/doctor"
    migrate(warehouse_url)
    monkeypatch.setenv("PENSTOCK_POSTGRES_URL", database_url)
    monkeypatch.setenv("PENSTOCK_REDIS_URL", redis_url)
    monkeypatch.setenv("PENSTOCK_CLICKHOUSE_URL", warehouse_url)
    with Redis.from_url(redis_url) as client:
        before = client.config_get("appendonly")["appendonly"]
        client.config_set("appendonly", "no")
        _, findings = run_doctor()
        client.config_set("appendonly", before)
    assert ("ok", "The clock agrees with that of PostgreSQL.") in findings["clock"]
    assert findings["postgres"][-1][1].startswith("PostgreSQL ")
    assert findings["horizon"][0][0] == "ok"
    assert "Set appendonly yes" in findings["redis"][0][1]
    assert findings["redis"][0][0] == "warning"
    assert findings["clickhouse"][-1][0] == "ok"
    assert findings["pipeline"][0][0] == "problem"  # none has reported to this Redis


def test_every_wrong_setting_and_an_unreachable_server_are_problems(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_PROT", "1")
    monkeypatch.setenv("PENSTOCK_LEASE_MS", "x")
    monkeypatch.setenv("PENSTOCK_REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("PENSTOCK_OIDC_ISSUER", "https://id.example.com")
    exit_code, findings = run_doctor()
    assert exit_code == 1
    texts = [text for level, text in findings["settings"] if level == "problem"]
    assert texts[0] == "Unknown setting PENSTOCK_PROT. Did you mean PENSTOCK_PORT?"
    assert any("PENSTOCK_LEASE_MS" in text for text in texts)
    assert any("PENSTOCK_OIDC_ISSUER has no effect" in text for text in texts)
    assert findings["redis"][0][0] == "problem"
    assert "PENSTOCK_REDIS_URL" in findings["redis"][0][1]


def test_a_taken_port_names_the_program_that_holds_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("PENSTOCK_PORT", str(server.getsockname()[1]))
        exit_code, findings = run_doctor()
    assert exit_code == 1
    assert "is already in use by" in findings["broker"][0][1]


@pytest.mark.parametrize(("days", "level"), [(-1, "problem"), (5, "warning"), (300, "ok")])
def test_the_expiry_of_the_certificate_is_reported(
    home: Path, monkeypatch: pytest.MonkeyPatch, days: int, level: str
) -> None:
    certificate, key = create_certificate(home, not_before_days=-2, not_after_days=days)
    monkeypatch.setenv("PENSTOCK_TLS_CERT", str(certificate))
    monkeypatch.setenv("PENSTOCK_TLS_KEY", str(key))
    _, findings = run_doctor()
    assert findings["certificate"][0][0] == level


def test_an_exposed_broker_without_authentication_is_a_problem(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_HOST", "0.0.0.0")
    assert run_doctor()[1]["access"][0][0] == "problem"
    monkeypatch.setenv("PENSTOCK_INSECURE", "1")
    assert run_doctor()[1]["access"][0][0] == "warning"


def test_the_facts_of_a_database_without_the_schema_have_no_horizon(postgres_url: str) -> None:
    facts = read_server_facts(postgres_url)
    assert facts.max_connections > facts.connections > 0
    assert facts.horizon == []
