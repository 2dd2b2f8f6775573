"""Broker processes as they run in production: `penstock serve` with real servers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from penstock.embedded.servers.ports import any_free_port
from tests.certificates import create_certificate
from tests.deadlines import deadline_s
from tests.waiting import wait_until

START_TIMEOUT_S = 120
SLOW_START = """
import sys, time
if any("multiprocessing" in argument for argument in sys.orig_argv):
    time.sleep(8)
"""
"""A `sitecustomize` that delays worker processes before they run any code of their own."""


@pytest.fixture
def environment(database_url: str, redis_url: str, clickhouse_url: str, tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PENSTOCK_POSTGRES_URL": database_url,
        "PENSTOCK_REDIS_URL": redis_url,
        "PENSTOCK_CLICKHOUSE_URL": clickhouse_url,
        "PENSTOCK_HOME": str(tmp_path / "home"),
        "PENSTOCK_PORT": str(any_free_port()),
    }


@contextmanager
def serve(environment: dict[str, str], output: Path) -> Iterator[psutil.Process]:
    """Run `penstock serve` until the end of the block, and check that SIGTERM stops it."""
    with output.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.main", "serve"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(deadline_s(60))
    assert process.returncode in (0, -signal.SIGTERM), output.read_text()


def wait_for_workers(output: Path, count: int) -> None:
    """Wait until so many workers have started, and check that none was replaced before that."""

    def have_started() -> bool:
        text = output.read_text()
        assert "died" not in text, text
        return text.count("Application startup complete") == count

    wait_until(have_started, START_TIMEOUT_S, f"{count} workers start")


def test_a_worker_that_starts_slowly_is_not_replaced(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW_START)
    path = os.pathsep.join([str(tmp_path), environment.get("PYTHONPATH", "")])
    output = tmp_path / "serve.log"
    with serve({**environment, "PENSTOCK_WORKERS": "2", "PYTHONPATH": path}, output):
        wait_for_workers(output, 2)


def test_a_broker_that_serves_no_series_does_not_load_numpy(
    environment: dict[str, str], tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{environment['PENSTOCK_PORT']}"
    with serve(environment, tmp_path / "serve.log") as broker:
        wait_for_workers(tmp_path / "serve.log", 1)
        with httpx.Client(base_url=url, timeout=deadline_s(30)) as client:
            item = {"queue": "orders", "payload": 1}
            assert client.post("/api/v1/push", json={"items": [item]}).status_code == 201
            assert client.get("/api/v1/pop/queue/orders").status_code == 200
            assert client.get("/health").json()["parts"]["clickhouse"]["status"] == "up"
            assert client.get("/metrics").status_code == 200
            assert not loads_numpy(broker)
            client.get("/api/v1/queues/orders/metrics")
            assert loads_numpy(broker), "the check finds numpy once it is loaded"


def test_a_second_broker_on_the_same_port_names_the_first_one(
    environment: dict[str, str], tmp_path: Path
) -> None:
    port = environment["PENSTOCK_PORT"]
    with serve({**environment, "PENSTOCK_WORKERS": "2"}, tmp_path / "serve.log") as broker:
        wait_for_workers(tmp_path / "serve.log", 2)
        for command in ("serve", "up"):
            result = subprocess.run(
                [sys.executable, "-m", "penstock.cli.main", command],
                env={**environment, "PENSTOCK_HOME": str(tmp_path / "second home")},
                capture_output=True,
                text=True,
                check=False,
            )
            assert result.stderr == (
                f"Port {port} is already in use by the Penstock with the home {tmp_path / 'home'} "
                f"(pid {broker.pid}). Stop it, or choose another port, for example "
                f"PENSTOCK_PORT={min(int(port) + 10, 65535)} penstock {command}.\n"
            )
            assert result.returncode == 2


def test_a_broker_that_drains_serves_and_is_not_ready(environment: dict[str, str], tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{environment['PENSTOCK_PORT']}"
    with serve({**environment, "PENSTOCK_DRAIN_S": "20"}, tmp_path / "serve.log") as broker:
        wait_for_workers(tmp_path / "serve.log", 1)
        assert httpx.get(f"{url}/health/ready").json() == {"status": "ready"}
        broker.terminate()
        wait_until(
            lambda: httpx.get(f"{url}/health/ready").status_code == 503, START_TIMEOUT_S, "the broker drains"
        )
        assert httpx.get(f"{url}/health/ready").json() == {
            "status": "not ready",
            "reasons": ["This broker is stopping."],
        }
        assert httpx.get(f"{url}/health/live").status_code == 200
        item = {"queue": "orders", "payload": 1}
        assert httpx.post(f"{url}/api/v1/push", json={"items": [item]}).status_code == 201


def test_every_worker_serves_a_replaced_certificate_and_commands_find_the_broker(
    environment: dict[str, str], tmp_path: Path
) -> None:
    certificate, key = create_certificate(tmp_path)
    environment |= {"PENSTOCK_TLS_CERT": str(certificate), "PENSTOCK_TLS_KEY": str(key)}
    output = tmp_path / "serve.log"
    with serve({**environment, "PENSTOCK_WORKERS": "2"}, output):
        wait_for_workers(output, 2)
        queues = [sys.executable, "-m", "penstock.cli.main", "queues", "ls", "--json"]
        assert json.loads(subprocess.check_output(queues, env=environment))["queues"] == []
        by_name = [*queues, "--url", f"https://localhost:{environment['PENSTOCK_PORT']}"]
        untrusted = subprocess.run(by_name, env=environment, capture_output=True, text=True, check=False)
        assert "is not accepted: self-signed certificate. Use a name" in untrusted.stderr
        assert "PENSTOCK_CA" in untrusted.stderr
        assert subprocess.check_output(by_name, env={**environment, "PENSTOCK_CA": str(certificate)})
        (tmp_path / "new").mkdir()
        for old, new in zip((certificate, key), create_certificate(tmp_path / "new"), strict=True):
            new.replace(old)
        wait_until(
            lambda: output.read_text().count("The TLS certificate was replaced") == 2,
            START_TIMEOUT_S,
            "both workers replace the certificate",
        )
        assert subprocess.check_output(by_name, env={**environment, "PENSTOCK_CA": str(certificate)})


def loads_numpy(process: psutil.Process) -> bool:
    return any("numpy" in mapping.path for mapping in process.memory_maps())
