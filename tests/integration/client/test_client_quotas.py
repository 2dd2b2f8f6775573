"""The client waits and retries when a quota is used up, as it does when the broker is overloaded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from penstock.client import Client, ClientSettings, Overloaded
from tests.integration.client.broker_server import run_broker


@pytest_asyncio.fixture
async def url(database_url: str) -> AsyncIterator[str]:
    async with run_broker(database_url, metrics_enabled=False) as address:
        yield address


async def set_quotas(url: str, **quotas: int) -> None:
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
        response = await http.put("/api/v1/environments/default/default/default", json={"quotas": quotas})
        assert response.status_code == 200, response.text


async def test_pushes_beyond_the_rate_are_retried_until_they_are_admitted(url: str) -> None:
    await set_quotas(url, requestsPerSecond=10)
    async with Client(url) as client:
        results = await asyncio.gather(*(client.push("q", number) for number in range(30)))
        assert {result.status for result in results} == {"queued"}
        await set_quotas(url)
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            response = await http.get("/api/v1/pop/queue/q", params={"batch": 100})
        assert sorted(message["data"] for message in response.json()["messages"]) == list(range(30))


async def test_a_client_that_does_not_retry_gets_the_name_of_the_quota(url: str) -> None:
    await set_quotas(url, queues=0)
    async with Client(url, ClientSettings(retry_on_429=False)) as client:
        with pytest.raises(Overloaded) as raised:
            await client.push("q", 1)
    assert raised.value.code == "quota_exceeded"
    assert raised.value.fields["quota"] == "queues"
    assert raised.value.retry_after_s == 5
