"""Live streams over real connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest_asyncio

from penstock.access.token_service import NewToken
from penstock.api.live.event_stream import LiveStreams
from penstock.caller import LOCAL_CALLER
from penstock.config import Settings
from penstock.model import DEFAULT_SCOPE
from tests.deadlines import deadline_s
from tests.integration.api.broker_tokens import GuardedBroker, bearer, run_guarded_broker
from tests.integration.api.calls import assert_problem, push
from tests.waiting import wait_until_async


@pytest_asyncio.fixture
async def broker(settings: Settings) -> AsyncIterator[GuardedBroker]:
    async with run_guarded_broker(settings) as guarded_broker:
        yield guarded_broker


@pytest_asyncio.fixture
async def client(broker: GuardedBroker) -> AsyncIterator[httpx.AsyncClient]:
    async with broker.client(await broker.secret(["read", "produce", "operate"])) as http_client:
        yield http_client


class EventReader:
    """Reads the events of a stream one by one."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()

    async def next(self) -> tuple[str, Any]:
        """The next event, without comments and `retry`. ("closed", None) at the end."""
        name = ""
        async with asyncio.timeout(deadline_s(20)):
            async for line in self._lines:
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    return name, json.loads(line.removeprefix("data: "))
        return "closed", None


@asynccontextmanager
async def open_stream(client: httpx.AsyncClient, **params: Any) -> AsyncIterator[EventReader]:
    async with client.stream("GET", "/api/v1/live", params=params, timeout=60) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-accel-buffering"] == "no"
        yield EventReader(response)


async def test_a_stream_sends_the_document_again_when_it_changes(client: httpx.AsyncClient) -> None:
    await push(client, 1, queue="orders")
    async with open_stream(client, topic="queues", search="orders") as events:
        name, page = await events.next()
        assert (name, [queue["depth"] for queue in page["queues"]]) == ("snapshot", [1])
        await push(client, 2, queue="orders")
        while page["queues"][0]["depth"] == 1:
            name, page = await events.next()
        assert (name, page["queues"][0]["depth"]) == ("snapshot", 2)
    async with open_stream(client, topic="queue", name="orders") as events:
        _, document = await events.next()
        assert document["queue"]["depth"] == 2
    async with open_stream(client, topic="overview") as events:
        _, document = await events.next()
        assert document["totals"]["depth"] == 2


async def test_a_queue_has_a_stream_as_soon_as_it_exists(client: httpx.AsyncClient) -> None:
    """The snapshot of all queues that others read a moment ago does not have it yet."""
    await push(client, 1, queue="first")
    async with open_stream(client, topic="queues") as events:
        await events.next()
        await push(client, 2, queue="second")
        async with open_stream(client, topic="queue", name="second") as queue_events:
            _, document = await queue_events.next()
            assert document["queue"]["depth"] == 1
    assert_problem(
        await client.get("/api/v1/live", params={"topic": "queue", "name": "third"}), 404, "unknown_queue"
    )


async def test_a_stream_ends_when_the_token_is_revoked(broker: GuardedBroker) -> None:
    secret = await broker.create(NewToken(name="viewer", scopes=["read"]))
    async with broker.client(secret) as viewer, open_stream(viewer, topic="queues") as events:
        await events.next()
        tokens = broker.services.access_tokens
        [token] = await tokens.list_tokens(DEFAULT_SCOPE, name="viewer", limit=1)
        await tokens.revoke(LOCAL_CALLER, token.row.id)
        name, problem = await events.next()
        assert (name, problem["code"]) == ("end", "unauthorized")
        assert await events.next() == ("closed", None)


async def test_a_stream_ends_with_the_session_of_a_browser(broker: GuardedBroker) -> None:
    secret = await broker.secret(["read"])
    async with broker.client() as browser:
        login = await browser.post("/api/v1/session", json={"token": secret})
        assert login.status_code == 201, login.text
        csrf = {"X-CSRF-Token": login.json()["csrfToken"]}
        async with open_stream(browser, topic="queues") as events:
            await events.next()
            assert (await browser.delete("/api/v1/session", headers=csrf)).status_code == 204
            name, problem = await events.next()
            assert (name, problem["code"]) == ("end", "unauthorized")


async def test_streams_end_when_the_broker_drains(broker: GuardedBroker, client: httpx.AsyncClient) -> None:
    async with open_stream(client, topic="queues") as events:
        await events.next()
        broker.services.begin_drain()
        name, problem = await events.next()
        assert (name, problem["code"]) == ("end", "broker_stopping")
        assert await events.next() == ("closed", None)
    response = await client.get("/api/v1/live", params={"topic": "queues"})
    assert_problem(response, 503, "broker_stopping")


async def test_an_open_stream_does_not_delay_the_stop_of_the_server(settings: Settings) -> None:
    async with run_guarded_broker(settings) as broker:
        client = broker.client(await broker.secret(["read"]))
        stream = open_stream(client, topic="queues")
        events = await stream.__aenter__()
        await events.next()
        broker.server.uvicorn.should_exit = True
        assert (await events.next())[0] == "end"
        assert await events.next() == ("closed", None)
        await stream.__aexit__(None, None, None)
        await client.aclose()


async def test_a_caller_has_a_bounded_number_of_streams_and_gets_them_back(
    broker: GuardedBroker, client: httpx.AsyncClient
) -> None:
    streams = LiveStreams(max_per_caller=1)
    object.__setattr__(broker.services, "live_streams", streams)
    async with open_stream(client, topic="queues") as events:
        await events.next()
        response = await client.get("/api/v1/live", params={"topic": "queues"})
        assert "1 live streams" in assert_problem(response, 429, "too_many_streams")

    async def is_freed() -> bool:
        return streams.count == 0

    await wait_until_async(is_freed, 10, "the stream of the disconnected client has ended")
    async with open_stream(client, topic="queues"):
        assert streams.count == 1


async def test_an_idle_stream_sends_heartbeats(broker: GuardedBroker, client: httpx.AsyncClient) -> None:
    object.__setattr__(broker.services, "live_streams", LiveStreams(interval_s=0.05, heartbeat_s=0.1))
    async with client.stream("GET", "/api/v1/live", params={"topic": "queues"}) as response:
        async for line in response.aiter_lines():
            if line == ": heartbeat":
                break


async def test_bad_topics_and_unknown_queues_have_a_status(client: httpx.AsyncClient) -> None:
    for params, status, code in (
        ({}, 422, "invalid_request"),
        ({"topic": "x"}, 422, "invalid_request"),
        ({"topic": "queue"}, 422, "invalid_request"),
        ({"topic": "queue", "name": "missing"}, 404, "unknown_queue"),
        ({"topic": "overview", "x": "1"}, 422, "invalid_request"),
    ):
        assert_problem(await client.get("/api/v1/live", params=params), status, code)


async def test_a_limited_token_sees_its_queues_alone(
    broker: GuardedBroker, client: httpx.AsyncClient
) -> None:
    await push(client, 1, queue="orders-eu")
    await push(client, 1, queue="stock")
    token = NewToken(name="limited", scopes=["read"], queues=["orders*"])
    headers = bearer(await broker.create(token))
    page = (await client.get("/api/v1/console/queues", headers=headers)).json()
    assert [queue["name"] for queue in page["queues"]] == ["orders-eu"]
    assert page["counts"]["durable"] == 1
    for path, params in (
        ("/api/v1/console/overview", {}),
        ("/api/v1/live", {"topic": "overview"}),
        ("/api/v1/live", {"topic": "queue", "name": "stock"}),
    ):
        assert_problem(await client.get(path, params=params, headers=headers), 403, "forbidden")
