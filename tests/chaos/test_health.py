"""`/health`, `/health/ready` and `/health/live` while real servers are killed or hang."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from redis import Redis

from penstock.api.app import create_app
from penstock.broker import store_migrations
from penstock.config import Settings
from penstock.embedded.servers.clickhouse import ClickHouse
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.postgres import Postgres
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import start, wait_until_healthy
from penstock.embedded.supervision.process import stop
from penstock.streams.progress import PROGRESS_KEY
from tests.deadlines import deadline_s
from tests.waiting import wait_until_async

TIMEOUT_S = 60
RESPONSE_TIMEOUT_S = 30
"""A route that waits for a server that hangs would never respond."""

EFFECTS = {
    "postgres": "Pushes go to the journal; pops and acks get 503.",
    "redis": "Run queues get 503, and metric events wait in the broker. Durable queues work.",
    "clickhouse": "Queues work; charts show no new data, and metric events wait in Redis.",
}


class Servers:
    """The servers of one broker, by the names that `/health` has for them."""

    def __init__(self, home: Path) -> None:
        self.postgres = Postgres(home, any_free_port())
        self.valkey = Valkey(home, any_free_port())
        self.clickhouse = ClickHouse(home, any_free_port())
        self.programs = {"postgres": self.postgres, "redis": self.valkey, "clickhouse": self.clickhouse}
        for program in self.programs.values():
            program.prepare()
        self.children = {name: start(program) for name, program in self.programs.items()}
        for name in self.programs:
            wait_until_healthy(self.programs[name], self.children[name])

    def settings(self, home: Path, **values: Any) -> Settings:
        return Settings(
            home=home,
            postgres_url=self.postgres.url,
            redis_url=self.valkey.url,
            clickhouse_url=self.clickhouse.url,
            **values,
        )

    def stop(self) -> None:
        for name, child in self.children.items():
            stop(child, self.programs[name].stop_timeout_s)

    @contextmanager
    def away(self, name: str, number: signal.Signals) -> Iterator[None]:
        """Kill a server, or suspend it with all its processes, until the end of the block."""
        process = self.children[name].process
        if number is signal.SIGSTOP:
            leader = psutil.Process(process.pid)
            suspended = [leader, *leader.children(recursive=True)]
            for member in suspended:
                member.suspend()
            try:
                yield
            finally:
                for member in suspended:
                    member.resume()
            return
        process.send_signal(signal.SIGQUIT if name == "postgres" else number)
        process.wait(deadline_s(TIMEOUT_S))
        try:
            yield
        finally:
            self.programs[name].prepare()
            self.children[name] = start(self.programs[name])
            wait_until_healthy(self.programs[name], self.children[name])


@pytest.fixture(scope="module")
def servers(server_home: Path) -> Iterator[Servers]:
    home = server_home / "health"
    home.mkdir()
    servers = Servers(home)
    try:
        asyncio.run(store_migrations.migrate(servers.settings(home)))
        with Redis.from_url(servers.valkey.url) as redis:  # a pipeline that always runs
            progress = {"at": time.time() + 86_400, "state": "running", "metrics": {}}
            redis.set(PROGRESS_KEY, json.dumps(progress))
        yield servers
    finally:
        servers.stop()


class Probes:
    """The three routes of one broker."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def get(self, path: str) -> tuple[int, dict[str, Any]]:
        async with asyncio.timeout(deadline_s(RESPONSE_TIMEOUT_S)):
            response = await self.client.get(path)
        body: dict[str, Any] = response.json()
        return response.status_code, body

    async def wait_for_status(self, path: str, *expected: object) -> dict[str, Any]:
        """Wait until the status code and the `status` of the body are these; return the body."""

        async def read_body() -> dict[str, Any] | None:
            status_code, body = await self.get(path)
            assert (status_code, body["status"]) == expected, (status_code, body)
            return body

        body = await wait_until_async(read_body, TIMEOUT_S, f"{path} responds with {expected}")
        assert body is not None
        return body

    async def push(self, payload: str) -> int:
        async with asyncio.timeout(deadline_s(RESPONSE_TIMEOUT_S)):
            items = {"items": [{"queue": "health", "payload": payload}]}
            response = await self.client.post("/api/v1/push", json=items)
        return response.status_code


@asynccontextmanager
async def running_broker(settings: Settings) -> AsyncIterator[Probes]:
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield Probes(client)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("name", EFFECTS)
async def test_a_broker_without_one_server_is_degraded_and_ready(
    servers: Servers, tmp_path: Path, name: str, number: signal.Signals
) -> None:
    async with running_broker(servers.settings(tmp_path)) as probes:
        body = await probes.wait_for_status("/health", 200, "ok")
        assert body["reasons"] == []
        with servers.away(name, number):
            body = await probes.wait_for_status("/health", 200, "degraded")
            assert {part for part, health in body["parts"].items() if health["status"] == "down"} >= {name}
            [reason] = [reason for reason in body["reasons"] if reason.startswith(f"{name} is down: ")]
            assert reason.endswith(EFFECTS[name])
            assert await probes.get("/health/ready") == (200, {"status": "ready"})
            assert await probes.get("/health/live") == (200, {"status": "ok"})
        await probes.wait_for_status("/health", 200, "ok")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_broker_without_postgres_and_journal_is_down_and_not_ready(
    servers: Servers, tmp_path: Path, number: signal.Signals
) -> None:
    async with running_broker(servers.settings(tmp_path, journal_mb=0)) as probes:
        await probes.wait_for_status("/health/ready", 200, "ready")
        with servers.away("postgres", number):
            not_ready = await probes.wait_for_status("/health/ready", 503, "not ready")
            down = await probes.wait_for_status("/health", 503, "down")
            for [reason] in (not_ready["reasons"], down["reasons"]):
                assert reason.endswith(
                    "Messages cannot be taken: the journal is switched off (PENSTOCK_JOURNAL_MB=0)."
                )
            assert await probes.get("/health/live") == (200, {"status": "ok"})
        await probes.wait_for_status("/health/ready", 200, "ready")
        await probes.wait_for_status("/health", 200, "ok")


async def test_a_full_journal_makes_a_broker_not_ready_while_postgres_is_away(
    servers: Servers, tmp_path: Path
) -> None:
    async with running_broker(servers.settings(tmp_path, journal_mb=1)) as probes:
        with servers.away("postgres", signal.SIGKILL):
            await probes.wait_for_status("/health", 200, "degraded")
            while await probes.push("x" * 30_000) == 202:
                await probes.wait_for_status("/health/live", 200, "ok")
            status_code, statistics = await probes.get("/api/v1/operations/stats")
            assert (status_code, statistics["stats"]) == (200, []), "the journal is shown in an outage too"
            assert statistics["journal"]["records"] > 0
            assert statistics["databaseOutageSeconds"] > 0
            for path, status in (("/health/ready", "not ready"), ("/health", "down")):
                body = await probes.wait_for_status(path, 503, status)
                assert "the journal is full" in body["reasons"][0]
        await probes.wait_for_status("/health", 200, "ok")
