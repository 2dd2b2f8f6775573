"""Revoking a token ends its waiting requests and its leases on every broker, soon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest_asyncio

from penstock.access.token_service import NewToken
from penstock.caller import LOCAL_CALLER
from penstock.config import Settings
from tests.deadlines import deadline_s
from tests.integration.api.broker_tokens import ALL_SCOPES, GuardedBroker, run_guarded_broker
from tests.integration.api.calls import assert_problem
from tests.waiting import wait_until_async


@pytest_asyncio.fixture
async def brokers(settings: Settings, tmp_path: Path) -> AsyncIterator[list[GuardedBroker]]:
    """Two brokers on the same servers."""
    other = settings.model_copy(update={"home": tmp_path / "other"})
    async with run_guarded_broker(settings) as first, run_guarded_broker(other) as second:
        yield [first, second]


async def revoke(broker: GuardedBroker, name: str) -> None:
    tokens = broker.services.access_tokens
    [token] = await tokens.list_tokens(LOCAL_CALLER.environment, name=name, limit=1)
    await tokens.revoke(LOCAL_CALLER, token.row.id)


async def pop(client: httpx.AsyncClient, *, wait: bool = False) -> httpx.Response:
    timeout = "&wait=true&timeout=60000" if wait else ""
    return await client.get(f"/api/v1/pop/queue/orders?consumerGroup=g{timeout}", timeout=100)


async def dequeue(client: httpx.AsyncClient, *, wait_ms: int = 0) -> httpx.Response:
    return await client.post("/api/v1/run-queues/mail/dequeue", json={"waitMs": wait_ms}, timeout=100)


async def test_revoking_a_token_ends_its_waiting_requests_on_every_broker(
    brokers: list[GuardedBroker],
) -> None:
    secret = await brokers[0].create(NewToken(name="worker", scopes=ALL_SCOPES))
    await brokers[1].services.tokens.refresh()
    clients = [broker.client(secret) for broker in brokers]
    waiting = [
        asyncio.create_task(request)
        for client in clients
        for request in (pop(client, wait=True), dequeue(client, wait_ms=60_000))
    ]

    async def all_wait() -> bool:
        return all(
            broker.services.broker.parked_pops.count == 1 and broker.services.run_queues.waiting_dequeues == 1
            for broker in brokers
        )

    await wait_until_async(all_wait, 20, "a pop and a dequeue wait on both brokers")
    await revoke(brokers[0], "worker")
    async with asyncio.timeout(deadline_s(2)):
        responses = await asyncio.gather(*waiting)
    for response in responses:
        assert_problem(response, 401, "unauthorized")
    for client in clients:
        assert_problem(await pop(client), 401, "unauthorized")
        await client.aclose()


async def test_revoking_a_token_releases_its_leases(brokers: list[GuardedBroker]) -> None:
    revoked = await brokers[0].create(NewToken(name="worker", scopes=ALL_SCOPES))
    other = await brokers[0].create(NewToken(name="other", scopes=ALL_SCOPES))
    await brokers[1].services.tokens.refresh()
    async with brokers[0].client(revoked) as client, brokers[1].client(other) as other_client:
        await client.post("/api/v1/push", json={"items": [{"queue": "orders", "payload": 1}]})
        await client.post("/api/v1/run-queues/mail/tasks", json={"payload": 2})
        [message] = (await pop(client)).json()["messages"]
        [task] = (await dequeue(client)).json()["tasks"]
        assert (await pop(other_client)).status_code == 204
        await revoke(brokers[1], "worker")
        async with asyncio.timeout(deadline_s(2)):
            popped = (await pop(other_client, wait=True)).json()
            dequeued = (await dequeue(other_client, wait_ms=60_000)).json()
    assert popped["messages"][0]["transactionId"] == message["transactionId"]
    assert popped["messages"][0]["leaseId"] != message["leaseId"]
    assert dequeued["tasks"][0]["id"] == task["id"]
