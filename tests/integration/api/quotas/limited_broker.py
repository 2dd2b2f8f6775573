"""Brokers whose environment has quotas."""

from __future__ import annotations

from typing import Any

import httpx

from penstock.api.services import Services
from penstock.model import DEFAULT_SCOPE, Scope
from tests.integration.api.calls import app_services, assert_problem
from tests.integration.api.http.raw_connections import RunningServer
from tests.waiting import wait_until_async


class LimitedBroker:
    """A running broker and a client of it."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server

    @property
    def services(self) -> Services:
        return app_services(self.server.app)

    def client(self, secret: str | None = None) -> httpx.AsyncClient:
        headers = {"Content-Type": "application/json"}
        if secret is not None:
            headers["Authorization"] = f"Bearer {secret}"
        return httpx.AsyncClient(
            base_url=f"http://localhost:{self.server.port}", headers=headers, trust_env=False
        )

    async def limit(self, environment: Scope = DEFAULT_SCOPE, **quotas: int) -> None:
        """Replace the quotas of an environment, and wait until what it stores is known."""
        await self.services.environments.set_quotas(environment, quotas)

        async def is_sampled() -> bool:
            readings = self.services.quotas.read_environment(environment)
            return all(reading.used is not None for reading in readings)

        await wait_until_async(is_sampled, 20, "the use of the quotas is known")

    async def wait_for_use(self, quota: str, used: float) -> None:
        """Wait until the sampled use of a quota of the default environment has this value."""

        async def has_use() -> bool:
            readings = self.services.quotas.read_environment(DEFAULT_SCOPE)
            return any(reading.quota == quota and reading.used == used for reading in readings)

        await wait_until_async(has_use, 20, f"{used} of {quota} are used")


async def push(client: httpx.AsyncClient, queue: str, *payloads: object, **item: Any) -> httpx.Response:
    items = [{"queue": queue, "payload": payload, **item} for payload in payloads]
    return await client.post("/api/v1/push", json={"items": items})


def assert_exceeded(response: httpx.Response, quota: str, limit: int) -> None:
    assert_problem(response, 429, "quota_exceeded")
    body = response.json()
    assert (body["quota"], body["limit"]) == (quota, limit)
    assert int(response.headers["retry-after"]) >= body["retryAfter"] > 0
