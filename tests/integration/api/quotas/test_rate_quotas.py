"""Quotas of requests, bytes, waiting pops and connections, of one broker and of several."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.access.token_service import NewToken
from penstock.caller import LOCAL_CALLER
from penstock.config import Settings
from penstock.model import DEFAULT_SCOPE
from tests.integration.api.calls import get, scrape_metrics
from tests.integration.api.http.raw_connections import RawConnection, post, push_body, run_server
from tests.integration.api.http.raw_connections import get as get_request
from tests.integration.api.quotas.limited_broker import LimitedBroker, assert_exceeded, push
from tests.integration.broker.brokers import CuttableProxy
from tests.waiting import wait_until_async


async def count_admitted(client: httpx.AsyncClient, is_over: Callable[[], bool]) -> int:
    """Send requests without a pause; return how many were not refused by their rate."""
    admitted = 0
    while not is_over():
        response = await client.get("/api/v1/pop/queue/empty")
        if response.status_code == 204:
            admitted += 1
        else:
            assert_exceeded(response, "requestsPerSecond", response.json()["limit"])
    return admitted


async def admitted_rate(*clients: httpx.AsyncClient, seconds: float = 3.0) -> float:
    """Return the admitted requests per second of clients that send as fast as they can."""
    started_s = time.monotonic()
    counts = await asyncio.gather(
        *(count_admitted(client, lambda: time.monotonic() - started_s > seconds) for client in clients)
    )
    return sum(counts) / (time.monotonic() - started_s)


async def wait_for_rate(rate: float, *clients: httpx.AsyncClient) -> None:
    """Wait until the clients together are admitted at this rate, within 20 %.

    A machine that stops for a moment spoils a measurement, so it is repeated.
    """

    async def is_admitted() -> float:
        measured = await admitted_rate(*clients)
        assert rate * 0.8 <= measured <= rate * 1.2, measured
        return measured

    await wait_until_async(is_admitted, 30, f"{rate} requests per second are admitted")


async def test_requests_beyond_the_rate_are_refused_and_store_nothing(
    broker: LimitedBroker, client: httpx.AsyncClient
) -> None:
    await push(client, "q", 0)
    await broker.limit(requestsPerSecond=5)
    responses = [await push(client, "q", number) for number in range(1, 60)]
    refused = [response for response in responses if response.status_code != 201]
    assert refused
    for response in refused:
        assert_exceeded(response, "requestsPerSecond", 5)
    await broker.limit()
    messages = (await client.get("/api/v1/pop/queue/q", params={"batch": 100})).json()["messages"]
    assert len(messages) == 1 + len(responses) - len(refused)


async def test_routes_of_the_framework_count_and_public_ones_do_not(
    broker: LimitedBroker, client: httpx.AsyncClient
) -> None:
    await broker.limit(requestsPerSecond=1)
    responses = [await client.get("/api/v1/resources/queues") for _ in range(20)]
    refused = [response for response in responses if response.status_code == 429]
    assert_exceeded(refused[0], "requestsPerSecond", 1)
    for _ in range(20):
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/api/v1/quotas")).status_code == 200
        assert (await client.get("/api/v1/tokens")).status_code == 200


async def test_a_large_request_is_paid_for_by_the_next_ones(
    broker: LimitedBroker, client: httpx.AsyncClient
) -> None:
    await broker.limit(bytesPerSecond=1_000)
    assert (await push(client, "q", "x" * 20_000)).status_code == 201
    response = await push(client, "q", "x")
    assert_exceeded(response, "bytesPerSecond", 1_000)
    assert response.json()["retryAfter"] > 10
    assert_exceeded(await client.get("/api/v1/resources/queues"), "bytesPerSecond", 1_000)


async def test_the_bytes_of_responses_count(broker: LimitedBroker, client: httpx.AsyncClient) -> None:
    await push(client, "q", "x" * 20_000)
    await broker.limit(bytesPerSecond=1_000)
    assert (await client.get("/api/v1/pop/queue/q")).status_code == 200
    assert_exceeded(await push(client, "q", "x"), "bytesPerSecond", 1_000)
    await broker.limit(bytesPerSecond=2_000)
    assert (await client.get("/openapi.json")).status_code == 200
    assert (await client.get("/api/v1/messages", params={"queue": "q"})).status_code == 200
    assert_exceeded(await push(client, "q", "x"), "bytesPerSecond", 2_000)


async def test_the_quotas_of_a_token_do_not_limit_others(
    broker: LimitedBroker, client: httpx.AsyncClient
) -> None:
    new_token = NewToken(name="ci", scopes=["read", "produce"], quotas={"requestsPerSecond": 2, "queues": 1})
    secret = (await broker.services.access_tokens.create(LOCAL_CALLER, new_token)).secret
    async with broker.client(secret) as token_client:
        first = await push(token_client, "q", 1)
        responses = [await push(token_client, "q", 1) for _ in range(20)]
    assert first.status_code == 201
    refused = [response for response in responses if response.status_code == 429]
    assert_exceeded(refused[0], "requestsPerSecond", 2)
    assert "token ci" in refused[0].json()["detail"]
    for number in range(20):
        assert (await push(client, f"q{number}", 1)).status_code == 201
    async with broker.client(secret) as token_client:

        async def is_refused() -> bool:
            response = await push(token_client, "another", 1)
            return response.status_code == 429 and response.json()["quota"] == "queues"

        await wait_until_async(is_refused, 20, "the token cannot create a queue")


async def test_waiting_pops_beyond_the_quota_are_refused(
    broker: LimitedBroker, client: httpx.AsyncClient
) -> None:
    await push(client, "q", 1)
    await broker.limit(waitingPops=1)
    wait = {"wait": "true", "timeout": "60000"}
    async with broker.client() as waiting_client:
        waiting = asyncio.create_task(waiting_client.get("/api/v1/pop/queue/idle", params=wait))
        await wait_until_async(lambda: use_of(client, "waitingPops", 1), 20, "a pop waits")
        for path in ("/api/v1/pop/queue/idle", "/api/v1/pop/queue/missing"):
            assert_exceeded(await client.get(path, params=wait), "waitingPops", 1)
        dequeue = {"waitMs": 60_000}
        assert_exceeded(await client.post("/api/v1/run-queues/r/dequeue", json=dequeue), "waitingPops", 1)
        assert (await client.get("/api/v1/pop/queue/q")).status_code == 200
        waiting.cancel()
    await wait_until_async(lambda: use_of(client, "waitingPops", 0), 20, "no pop waits")
    wait["timeout"] = "1"
    assert (await client.get("/api/v1/pop/queue/idle", params=wait)).status_code == 204
    assert (await client.post("/api/v1/run-queues/r/dequeue", json={"waitMs": 1})).status_code == 200
    assert await use_of(client, "waitingPops", 0)


async def test_a_connection_beyond_the_quota_is_refused_and_closed(broker: LimitedBroker) -> None:
    await broker.limit(connections=2)
    request = post("/api/v1/push", push_body("q", 1))
    connections = [await RawConnection.open(broker.server) for _ in range(2)]
    for connection in connections:
        connection.send(request)
        assert (await connection.read_response())[0] == 201
    for refused_request in (request, get_request("/api/v1/resources/queues")):
        third = await RawConnection.open(broker.server)
        third.send(refused_request)
        status, headers, body = await third.read_response()
        assert (status, body["quota"], headers["connection"]) == (429, "connections", "close")
        assert await third.is_closed()
    connections[0].send(get_request("/api/v1/resources/queues"))
    assert (await connections[0].read_response())[0] == 200
    connections[1].writer.close()

    async def is_admitted() -> bool:
        another = await RawConnection.open(broker.server)
        another.send(request)
        status = (await another.read_response())[0]
        another.writer.close()
        return status == 201

    await wait_until_async(is_admitted, 20, "there is room for a connection")
    connections[0].writer.close()


async def use_of(client: httpx.AsyncClient, quota: str, used: float) -> bool:
    """Whether this much of a quota of the environment is used."""
    readings = (await get(client, "/quotas"))["environment"]["quotas"]
    return any(reading["quota"] == quota and reading["used"] == used for reading in readings)


@asynccontextmanager
async def run_second_broker(settings: Settings, home: Path) -> AsyncIterator[LimitedBroker]:
    home.mkdir()
    async with run_server(settings.model_copy(update={"home": home})) as server:
        yield LimitedBroker(server)


async def test_two_brokers_hold_a_rate_together(
    broker: LimitedBroker, settings: Settings, tmp_path: Path
) -> None:
    async with run_second_broker(settings, tmp_path / "second") as second:
        await broker.limit(requestsPerSecond=50)
        async with broker.client() as client, second.client() as second_client:
            await wait_for_rate(50, client, second_client)
            await wait_for_rate(50, client)


async def test_two_brokers_count_waiting_pops_together(
    broker: LimitedBroker, settings: Settings, tmp_path: Path
) -> None:
    wait = {"wait": "true", "timeout": "60000"}
    async with run_second_broker(settings, tmp_path / "second") as second:
        await broker.limit(waitingPops=1)
        async with broker.client() as client, second.client() as second_client:
            waiting = asyncio.create_task(client.get("/api/v1/pop/queue/idle", params=wait))
            await wait_until_async(
                lambda: use_of(second_client, "waitingPops", 1), 20, "the second broker knows of the pop"
            )
            response = await second_client.get("/api/v1/pop/queue/idle", params=wait)
            assert_exceeded(response, "waitingPops", 1)
            waiting.cancel()


async def test_without_redis_each_process_enforces_its_share(settings: Settings) -> None:
    proxy = CuttableProxy(settings.redis_url)
    async with proxy.run() as url:
        changes: dict[str, Any] = {"redis_url": url, "workers": 2}
        async with run_server(settings.model_copy(update=changes)) as server:
            broker = LimitedBroker(server)
            proxy.cut()
            await broker.limit(requestsPerSecond=40)
            async with broker.client() as client:
                await wait_for_rate(20, client)
                proxy.restore()
                await wait_for_rate(40, client)


async def test_use_is_a_warning_from_80_percent_and_logged_once(
    broker: LimitedBroker, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await broker.limit(queues=5, storedMessages=1_000)
    for number in range(3):
        await push(client, f"q{number}", 1)
    await broker.wait_for_use("queues", 3)
    assert not any(reading["warning"] for reading in await environment_quotas(client))
    with caplog.at_level(logging.WARNING):
        await push(client, "q3", 1)
        await broker.wait_for_use("queues", 4)
        await wait_until_async(lambda: is_logged(caplog), 20, "the warning is logged")
        await broker.wait_for_use("storedMessages", 4)
    assert await environment_quotas(client) == [
        {"quota": "queues", "limit": 5, "used": 4, "warning": True},
        {"quota": "storedMessages", "limit": 1_000, "used": 4, "warning": False},
    ]
    warnings = [record for record in caplog.records if "quota queues" in record.getMessage()]
    assert len(warnings) == 1


async def is_logged(caplog: pytest.LogCaptureFixture) -> bool:
    return "uses 4 of 5 queues (quota queues)" in caplog.text


async def environment_quotas(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    document = await get(client, "/quotas")
    assert document["environment"]["name"] == "default/default/default"
    quotas: list[dict[str, Any]] = document["environment"]["quotas"]
    return quotas


async def test_metrics_show_limits_use_and_refusals(broker: LimitedBroker, client: httpx.AsyncClient) -> None:
    await broker.limit(queues=1)
    await push(client, "q", 1)
    assert_exceeded(await push(client, "other", 1), "queues", 1)
    await broker.wait_for_use("queues", 1)
    samples = await scrape_metrics(client)
    assert samples["penstock_quota_limit"] == {("queues",): 1}
    assert samples["penstock_quota_used"] == {("queues",): 1}
    assert samples["penstock_quota_refused"] == {("queues",): 1}


async def test_callers_without_quotas_have_nothing_to_check(
    broker: LimitedBroker, client: httpx.AsyncClient
) -> None:
    assert (await push(client, "q", 1)).status_code == 201
    caller = broker.services.authentication.find_caller({})
    assert caller is not None
    assert caller.has_known_quotas
    assert caller.quotas is None
    await broker.limit(requestsPerSecond=10)
    assert caller.quotas is not None
    await broker.limit()
    assert caller.quotas is None
    assert (await get(client, "/quotas"))["environment"]["quotas"] == []
    assert broker.services.quotas.read_environment(DEFAULT_SCOPE) == []
