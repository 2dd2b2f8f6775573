"""Configuring and deleting queues over HTTP, seen by consumers and by another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from penstock.api.app import create_app
from penstock.config import Settings
from tests.integration.api.calls import ack, assert_problem, configure, pop, pop_payloads, push
from tests.waiting import wait_until_async

WaitForParkedPops = Callable[[int], Awaitable[None]]


async def test_a_queue_is_made_with_what_is_given(client: httpx.AsyncClient) -> None:
    answer = await configure(client, "jobs.mail", leaseTime=60, retryLimit=5, priority=7, maxSize=5000)
    body = answer.json()
    assert body["configured"] is True
    assert (body["queue"], body["namespace"], body["task"]) == ("jobs.mail", "jobs", "mail")
    shown = {
        name: body["options"][name] for name in ("leaseTime", "retryLimit", "priority", "maxSize", "ttl")
    }
    assert shown == {"leaseTime": 60, "retryLimit": 5, "priority": 7, "maxSize": 5000, "ttl": 0}
    [result] = await push(client, 1, queue="jobs.mail")
    assert result["partition_id"] == body["partitionId"]


async def test_namespace_and_task_can_be_named_and_stay(client: httpx.AsyncClient) -> None:
    body = {"queue": "q", "namespace": "ns", "task": "t", "options": None}
    assert (await client.post("/api/v1/configure", json=body)).status_code == 200
    again = (await client.post("/api/v1/configure", json={"queue": "q", "namespace": None})).json()
    assert (again["namespace"], again["task"]) == ("ns", "t")
    assert again["options"]["leaseTime"] == 300


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "queue"),
        ({"queue": ""}, "queue"),
        ({"queue": "q", "options": {"leaseTme": 1}}, "did you mean leaseTime?"),
        ({"queue": "q", "option": {}}, "did you mean options?"),
        ({"queue": "q", "leaseTime": 1}, "put it into options"),
        ({"queue": "q", "options": {"leaseTime": "1"}}, "leaseTime must be"),
        ({"queue": "q", "options": {"retryLimit": -1}}, "retryLimit must be"),
        ({"queue": "q", "options": [1]}, "options"),
        ({"queue": "q", "namespace": "a\u0000b"}, "namespace"),
        ({"queue": "q", "task": 7}, "task"),
    ],
)
async def test_a_bad_configuration_changes_nothing(
    client: httpx.AsyncClient, body: dict[str, Any], words: str
) -> None:
    await configure(client, retryLimit=9)
    given = (
        {**body, "options": {"priority": 5, **body["options"]}}
        if isinstance(body.get("options"), dict)
        else body
    )
    assert words in assert_problem(await client.post("/api/v1/configure", json=given), 422, "invalid_request")
    options = (await configure(client)).json()["options"]
    assert (options["retryLimit"], options["priority"]) == (9, 0)


async def test_a_body_that_is_no_json_gets_400(client: httpx.AsyncClient) -> None:
    assert_problem(await client.post("/api/v1/configure", content=b"{"), 400, "malformed_body")


async def test_encryption_without_a_key_is_refused(settings: Settings) -> None:
    app = create_app(settings.model_copy(update={"encryption_keys": ""}))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://penstock") as keyless:
            refused = await configure(keyless, encryptionEnabled=True)
            assert "PENSTOCK_ENCRYPTION_KEYS" in assert_problem(refused, 409, "wrong_state")
            assert_problem(await keyless.get("/api/v1/resources/queues/q"), 404, "unknown_queue")
            assert (await configure(keyless, encryptionEnabled=False)).status_code == 200


async def test_a_changed_lease_time_counts_for_the_next_pop(client: httpx.AsyncClient) -> None:
    await push(client, 1)
    await ack(client, (await pop(client))[0], "retry")
    await configure(client, leaseTime=0.1)
    await pop(client)

    async def comes_back() -> bool:
        return await pop_payloads(client) == [1]

    await wait_until_async(comes_back, 10, "the short lease ends")


async def test_a_shorter_delay_wakes_who_waits(
    client: httpx.AsyncClient, wait_for_parked_pops: WaitForParkedPops
) -> None:
    await configure(client, delayedProcessing=600)
    await push(client, "now")
    waiting = asyncio.create_task(pop_payloads(client, wait="true", timeout=20_000))
    await wait_for_parked_pops(1)
    await configure(client, delayedProcessing=0)
    assert await waiting == ["now"]


async def test_a_deleted_queue_is_gone_with_its_messages(client: httpx.AsyncClient) -> None:
    await push(client, 1)
    answer = await client.delete("/api/v1/resources/queues/q")
    assert answer.json() == {"deleted": True, "existed": True, "queue": "q"}
    assert (await client.delete("/api/v1/resources/queues/q")).json()["existed"] is False
    assert_problem(await client.get("/api/v1/resources/queues/q"), 404, "unknown_queue")
    await push(client, 2)
    assert await pop_payloads(client, batch=5) == [2]


async def test_who_waits_for_a_deleted_queue_gets_what_the_new_one_has(
    client: httpx.AsyncClient, wait_for_parked_pops: WaitForParkedPops
) -> None:
    await configure(client)
    waiting = asyncio.create_task(pop_payloads(client, wait="true", timeout=20_000))
    await wait_for_parked_pops(1)
    await client.delete("/api/v1/resources/queues/q")
    assert await waiting == [], "it is let go, and asks again"
    waiting = asyncio.create_task(pop_payloads(client, wait="true", timeout=20_000))
    await wait_for_parked_pops(1)
    await push(client, "new")
    assert await waiting == ["new"]


async def test_another_broker_learns_of_options_and_deletion(
    client: httpx.AsyncClient, settings: Settings
) -> None:
    other: FastAPI = create_app(settings)
    async with other.router.lifespan_context(other):
        transport = httpx.ASGITransport(other, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://other") as neighbour:
            await push(neighbour, "plain", queue="secret")
            await configure(client, "secret", encryptionEnabled=True)

            async def sealed() -> bool:
                await push(neighbour, "sealed", queue="secret")
                rows = await other.state.services.broker.database.fetch(
                    "SELECT payloads[1] AS p FROM log ORDER BY first_offset"
                )
                return bool(rows[-1]["p"][0] == 1)

            await wait_until_async(sealed, 10, "the other broker seals")
            assert (await pop_payloads(neighbour, "secret", batch=100))[-1] == "sealed"
            await client.delete("/api/v1/resources/queues/secret")
            await push(neighbour, "anew", queue="secret")
            assert await pop_payloads(client, "secret", batch=100) == ["anew"]
