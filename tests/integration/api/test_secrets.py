"""No secret shows up in logs, responses, commands or process lists of a broker. Each secret is a canary."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import httpx
import psutil
import pytest

from penstock.embedded.servers.ports import any_free_port
from tests.deadlines import deadline_s
from tests.integration.api.test_server import START_TIMEOUT_S, serve, wait_for_workers
from tests.unit.alerts.delivery.channels import CHANNEL_FIELDS, SECRETS, SIGNING_SECRET, channel_fields
from tests.waiting import wait_until

CANARY = "canary7f3a"
UNREACHABLE = "127.0.0.1:1"
ENCRYPTION_KEY = base64.b64encode(CANARY.ljust(32, "x").encode()).decode()
PLANTED_SECRETS = (CANARY, ENCRYPTION_KEY, *SECRETS, SIGNING_SECRET)


@pytest.fixture
async def canary_database(database_url: str) -> str:
    """The URL of a database, with a user whose password is the canary."""
    parts = urlsplit(database_url)
    user = f"canary_{parts.path[1:]}"
    connection = await asyncpg.connect(database_url)
    await connection.execute(f"CREATE ROLE \"{user}\" SUPERUSER LOGIN PASSWORD '{CANARY}'")
    await connection.close()
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}:{CANARY}@{host}"))


@pytest.fixture
def environment(canary_database: str, tmp_path: Path) -> dict[str, str]:
    """Variables of a broker with PostgreSQL alone: errors of the other servers are in its log."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")},
        "PENSTOCK_HOME": str(tmp_path / "home"),
        "PENSTOCK_PORT": str(any_free_port()),
        "PENSTOCK_LOG_LEVEL": "debug",
        "PENSTOCK_WORKERS": "2",
        "PENSTOCK_POSTGRES_URL": canary_database,
        "PENSTOCK_REDIS_URL": f"redis://:{CANARY}@{UNREACHABLE}/0",
        "PENSTOCK_CLICKHOUSE_URL": f"http://me:{CANARY}@{UNREACHABLE}",
        "PENSTOCK_ENCRYPTION_KEYS": f"k1:{ENCRYPTION_KEY}",
        "PENSTOCK_AUTHENTICATION": "required",
        "PENSTOCK_METRICS_TOKEN": f"{CANARY}-metrics-token",
        "PENSTOCK_OIDC_ISSUER": f"http://{UNREACHABLE}",
        "PENSTOCK_OIDC_CLIENT_ID": "penstock",
        "PENSTOCK_OIDC_CLIENT_SECRET": CANARY,
        "PENSTOCK_OIDC_ROLES": "*=viewer",
    }


def run(environment: dict[str, str], *command: str) -> str:
    """The output of a command, with its errors."""
    result = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=deadline_s(120),
        check=False,
    )
    return result.stdout + result.stderr


def assert_no_secret(text: str, *further_secrets: str) -> None:
    for secret in (*PLANTED_SECRETS, *further_secrets):
        place = text.find(secret)
        assert place < 0, text[max(0, place - 200) : place + 200]


def test_a_running_broker_shows_no_secret(environment: dict[str, str], tmp_path: Path) -> None:
    output = tmp_path / "serve.log"
    with serve(environment, output) as broker:
        wait_for_workers(output, 2)
        admin: str = json.loads(run(environment, "tokens", "create", "--admin", "--json"))["secret"]
        token_environment = {**environment, "PENSTOCK_TOKEN": admin}
        with httpx.Client(
            base_url=f"http://127.0.0.1:{environment['PENSTOCK_PORT']}",
            headers={"Authorization": f"Bearer {admin}"},
            timeout=deadline_s(30),
        ) as client:
            wait_until(lambda: client.get("/api/v1/resources/queues").is_success, 30, "the token is known")
            responses = [
                *call_everything(client),
                client.get("/health", headers={"Authorization": "Bearer pk_x"}),
            ]
        for response in responses:
            assert_no_secret(f"{response.url} {response.headers} {response.text}", admin)
        for command in (
            ("config",),
            ("config", "--json"),
            ("status", "--json"),
            ("tokens", "ls"),
            ("queues", "ls"),
        ):
            assert_no_secret(run(token_environment, *command), admin)
        for process in (broker, *broker.children(recursive=True)):
            assert_no_secret(" ".join(process.cmdline()), admin)
            assert Path(f"/proc/{process.pid}/environ").stat().st_mode & 0o077 == 0
        wait_until(lambda: UNREACHABLE in output.read_text(), START_TIMEOUT_S, "the log names the servers")
    assert_no_secret(output.read_text(), admin)
    for file in (tmp_path / "home").rglob("*"):
        if file.is_file():
            assert_no_secret(file.read_bytes().decode("latin-1"), admin)


def call_everything(client: httpx.Client) -> list[httpx.Response]:
    """Call every route that reads something without parameters, and routes that fail or take secrets."""
    paths: dict[str, dict[str, Any]] = client.get("/openapi.json").json()["paths"]
    readable = [path for path, methods in paths.items() if "get" in methods and "{" not in path]
    assert len(readable) > 20
    created = [
        client.post("/api/v1/alert-channels", json=channel_fields(kind, name=kind)) for kind in CHANNEL_FIELDS
    ]
    assert [response.status_code for response in created] == [201] * len(created)
    encrypted = client.post(
        "/api/v1/configure", json={"queue": "sealed", "options": {"encryptionEnabled": True}}
    )
    assert encrypted.is_success, encrypted.text
    item = {"queue": "sealed", "payload": {"hello": "world"}}
    with ThreadPoolExecutor(8) as threads:  # routes that need ClickHouse wait for it
        responses = list(threads.map(client.get, (path for path in readable if "/pop" not in path)))
    return [
        *responses,
        *created,
        client.post("/api/v1/push", json={"items": [item]}),
        client.get("/api/v1/pop/queue/sealed"),
        client.post("/api/v1/run-queues/emails/tasks", json={"tasks": [{"payload": 1}]}),
        client.get("/api/v1/queues/sealed/metrics"),
        client.get("/auth/login"),
    ]


@pytest.mark.parametrize(
    "command",
    ["penstock.alerts.alerts_process", "penstock.cli.main pipeline run", "penstock.cli.main migrate"],
)
def test_other_processes_show_no_secret_while_servers_are_away(
    environment: dict[str, str], command: str, tmp_path: Path
) -> None:
    environment["PENSTOCK_POSTGRES_URL"] = f"postgresql://me:{CANARY}@{UNREACHABLE}/db"
    Path(environment["PENSTOCK_HOME"]).mkdir()
    output = tmp_path / "output.log"
    with output.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command.split()], env=environment, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        problem = re.compile(f"unreachable|{UNREACHABLE}")
        wait_until(lambda: problem.search(output.read_text()), START_TIMEOUT_S, "the output tells a problem")
        assert_no_secret(" ".join(psutil.Process(process.pid).cmdline()) if process.poll() is None else "")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(deadline_s(60))
    assert_no_secret(output.read_text())
