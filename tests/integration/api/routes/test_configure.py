"""The route that configures queues, and its effect on consumers and on another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from penstock.api.app import create_app
from penstock.config import Settings
from tests.integration.api.calls import ack, app_services, assert_problem, configure, pop, pop_payloads, push
from tests.waiting import wait_until_async

WaitForParkedPops = Callable[[int], Awaitable[None]]


async def test_configure_creates_a_queue_with_its_options(client: httpx.AsyncClient) -> None:
    response = await configure(client, "jobs.mail", leaseTime=60, retryLimit=5, priority=7, maxSize=5000)
    body = response.json()
    assert body["configured"] is True
    assert (body["queue"], body["namespace"], body["task"]) == ("jobs.mail", "jobs", "mail")
    shown = {
        name: body["options"][name] for name in ("leaseTime", "retryLimit", "priority", "maxSize", "ttl")
    }
    assert shown == {"leaseTime": 60, "retryLimit": 5, "priority": 7, "maxSize": 5000, "ttl": 0}
    [result] = await push(client, 1, queue="jobs.mail")
    assert result["partition_id"] == body["partitionId"]


async def test_namespace_and_task_are_kept_when_left_out(client: httpx.AsyncClient) -> None:
    body = {"queue": "q", "namespace": "ns", "task": "t", "options": None}
    assert (await client.post("/api/v1/configure", json=body)).status_code == 200
    again = (await client.post("/api/v1/configure", json={"queue": "q", "namespace": None})).json()
    assert (again["namespace"], again["task"]) == ("ns", "t")
    assert again["options"]["leaseTime"] == 300


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({}, "queue"),
        ({"queue": ""}, "queue"),
        ({"queue": "q", "options": {"leaseTme": 1}}, "did you mean leaseTime?"),
        ({"queue": "q", "option": {}}, "did you mean options?"),
        ({"queue": "q", "leaseTime": 1}, "Put it into options"),
        ({"queue": "q", "options": {"leaseTime": "1"}}, "leaseTime must be"),
        ({"queue": "q", "options": {"retryLimit": -1}}, "retryLimit must be"),
        ({"queue": "q", "options": [1]}, "options"),
        ({"queue": "q", "namespace": "a\u0000b"}, "namespace"),
        ({"queue": "q", "task": 7}, "task"),
    ],
)
async def test_a_bad_configuration_changes_nothing(
    client: httpx.AsyncClient, body: dict[str, Any], detail: str
) -> None:
    await configure(client, retryLimit=9)
    sent = (
        {**body, "options": {"priority": 5, **body["options"]}}
        if isinstance(body.get("options"), dict)
        else body
    )
    response = await client.post("/api/v1/configure", json=sent)
    assert detail in assert_problem(response, 422, "invalid_request")
    options = (await configure(client)).json()["options"]
    assert (options["retryLimit"], options["priority"]) == (9, 0)


async def test_a_body_that_is_no_json_gets_400(client: httpx.AsyncClient) -> None:
    assert_problem(await client.post("/api/v1/configure", content=b"{"), 400, "malformed_body")


async def test_encryption_without_a_key_is_refused(settings: Settings) -> None:
    app = create_app(settings.model_copy(update={"encryption_keys": ""}))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as keyless_client:
            refused = await configure(keyless_client, encryptionEnabled=True)
            assert "PENSTOCK_ENCRYPTION_KEYS" in assert_problem(refused, 409, "wrong_state")
            assert_problem(await keyless_client.get("/api/v1/resources/queues/q"), 404, "unknown_queue")
            assert (await configure(keyless_client, encryptionEnabled=False)).status_code == 200


async def test_a_changed_lease_time_applies_to_the_next_pop(client: httpx.AsyncClient) -> None:
    await push(client, 1)
    await ack(client, (await pop(client))[0], "retry")
    await configure(client, leaseTime=0.1)
    await pop(client)

    async def is_redelivered() -> bool:
        return await pop_payloads(client) == [1]

    await wait_until_async(is_redelivered, 10, "the short lease ends")


async def test_a_shorter_delay_wakes_parked_pops(
    client: httpx.AsyncClient, wait_for_parked_pops: WaitForParkedPops
) -> None:
    await configure(client, delayedProcessing=600)
    await push(client, "now")
    waiting = asyncio.create_task(pop_payloads(client, wait="true", timeout=20_000))
    await wait_for_parked_pops(1)
    await configure(client, delayedProcessing=0)
    assert await waiting == ["now"]


async def test_delete_removes_a_queue_with_its_messages(client: httpx.AsyncClient) -> None:
    await push(client, 1)
    response = await client.delete("/api/v1/resources/queues/q")
    assert response.json() == {"deleted": True, "existed": True, "queue": "q"}
    assert (await client.delete("/api/v1/resources/queues/q")).json()["existed"] is False
    assert_problem(await client.get("/api/v1/resources/queues/q"), 404, "unknown_queue")
    await push(client, 2)
    assert await pop_payloads(client, batch=5) == [2]


async def test_a_pop_parked_on_a_deleted_queue_gets_the_first_message_of_the_new_one(
    client: httpx.AsyncClient, wait_for_parked_pops: WaitForParkedPops
) -> None:
    await configure(client)
    waiting = asyncio.create_task(pop_payloads(client, wait="true", timeout=20_000))
    await wait_for_parked_pops(1)
    await client.delete("/api/v1/resources/queues/q")
    await push(client, "new")
    assert await waiting == ["new"]


async def test_another_broker_learns_of_changed_options_and_deletion(
    client: httpx.AsyncClient, settings: Settings
) -> None:
    other: FastAPI = create_app(settings)
    async with other.router.lifespan_context(other):
        transport = httpx.ASGITransport(other, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as other_client:
            await push(other_client, "plain", queue="secret")
            await configure(client, "secret", encryptionEnabled=True)

            async def is_encrypted() -> bool:
                await push(other_client, "encrypted", queue="secret")
                rows = await app_services(other).broker.database.fetch(
                    "SELECT payloads[1] AS p FROM log ORDER BY first_offset"
                )
                return bool(rows[-1]["p"][0] == 1)

            await wait_until_async(is_encrypted, 10, "the other broker encrypts")
            assert (await pop_payloads(other_client, "secret", batch=100))[-1] == "encrypted"
            await client.delete("/api/v1/resources/queues/secret")
            await push(other_client, "anew", queue="secret")
            assert await pop_payloads(client, "secret", batch=100) == ["anew"]
