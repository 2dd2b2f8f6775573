"""Tokens that are limited to patterns of queues and consumer groups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from penstock.access.token_service import NewToken
from penstock.caller import LOCAL_CALLER
from penstock.config import Settings
from penstock.model import DEFAULT_SCOPE
from tests.integration.api.broker_tokens import ALL_SCOPES, GuardedBroker, bearer, run_guarded_broker
from tests.integration.api.calls import ack, pop, push
from tests.integration.api.http.raw_connections import RawConnection, get


@pytest_asyncio.fixture
async def broker(settings: Settings) -> AsyncIterator[GuardedBroker]:
    async with run_guarded_broker(settings) as guarded_broker:
        yield guarded_broker


@pytest_asyncio.fixture
async def everything(broker: GuardedBroker) -> AsyncIterator[httpx.AsyncClient]:
    """A client whose token is not limited."""
    async with broker.client(await broker.secret(ALL_SCOPES)) as client:
        yield client


@pytest_asyncio.fixture
async def limited(broker: GuardedBroker) -> AsyncIterator[httpx.AsyncClient]:
    """A client whose token has every scope, for the queues orders* and the groups billing*."""
    token = NewToken(name="limited", scopes=ALL_SCOPES, queues=["orders*"], groups=["billing*"])
    async with broker.client(await broker.create(token)) as client:
        yield client


async def test_messages_of_matching_queues_are_pushed_popped_and_acked(limited: httpx.AsyncClient) -> None:
    await push(limited, 1, 2, queue="orders-eu")
    for _ in range(2):  # the second request has a known head
        [message] = await pop(limited, "orders-eu", consumerGroup="billing-1")
        await ack(limited, message, consumerGroup="billing-1")
    assert (await limited.get("/api/v1/resources/queues/orders-eu")).status_code == 200


@pytest.mark.parametrize("names", [["stock"], ["orders", "stock"]])
async def test_a_push_with_another_queue_is_refused_as_a_whole(
    limited: httpx.AsyncClient, everything: httpx.AsyncClient, names: list[str]
) -> None:
    items = [{"queue": name, "payload": 1} for name in names]
    for path, body in (
        ("/api/v1/push", {"items": items}),
        ("/api/v1/transaction", {"operations": [{"type": "push", "items": items}]}),
    ):
        response = await limited.post(path, json=body)
        assert response.status_code == 403
        assert "limited to the queues orders*. 'stock' is no such" in response.json()["detail"]
    assert (await everything.get("/api/v1/resources/queues")).json()["queues"] == []


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/pop/queue/stock?consumerGroup=billing",
        "/api/v1/pop/queue/orders?consumerGroup=audit",
        "/api/v1/pop/queue/orders",
        "/api/v1/pop/queue/orders/partition/p?consumerGroup=audit",
        "/api/v1/pop?namespace=n&consumerGroup=billing",
        "/api/v1/resources/queues",
        "/api/v1/resources/queues/stock",
        "/api/v1/status/queues/stock",
        "/api/v1/messages?queue=stock",
        "/api/v1/messages",
        "/api/v1/run-queues",
        "/api/v1/run-queues/stock",
        "/dlq-status",
    ],
)
async def test_other_queues_and_groups_are_refused(limited: httpx.AsyncClient, path: str) -> None:
    response = await limited.get(path)
    assert (response.status_code, response.json()["code"]) == (403, "forbidden")


async def test_a_parameter_that_the_route_does_not_have_names_no_queue(limited: httpx.AsyncClient) -> None:
    for method, path in (
        ("GET", "/api/v1/resources/queues?queue=orders"),
        ("DELETE", "/api/v1/messages/1/t?queue=orders&consumerGroup=billing"),
        ("DELETE", "/api/v1/consumer-groups/billing?queue=orders"),
    ):
        response = await limited.request(method, path)
        assert (response.status_code, response.json()["code"]) == (403, "forbidden"), path


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/v1/configure", {"queue": "orders"}, 200),
        ("/api/v1/configure", {"queue": "stock"}, 403),
        ("/api/v1/dlq/purge", {"queue": "orders", "consumerGroup": "billing", "dryRun": True}, 200),
        ("/api/v1/dlq/purge", {"queue": "orders", "consumerGroup": "audit", "dryRun": True}, 403),
        ("/api/v1/dlq/purge", {"queue": "stock", "consumerGroup": "billing", "dryRun": True}, 403),
        ("/api/v1/dlq/requeue", {"letterIds": ["7"], "dryRun": True}, 403),
        ("/api/v1/dlq/requeue", {"all": True, "dryRun": True}, 403),
        ("/api/v1/annotations", {"text": "deploy", "queue": "orders"}, 403),
    ],
)
async def test_the_queue_and_group_of_a_body_are_checked(
    limited: httpx.AsyncClient, path: str, body: dict[str, Any], status: int
) -> None:
    response = await limited.post(path, json=body)
    assert response.status_code == status, response.text


async def test_a_token_limited_to_queues_annotates_these_alone(
    broker: GuardedBroker, everything: httpx.AsyncClient
) -> None:
    path = "/api/v1/annotations"
    token = NewToken(name="deployer", scopes=["read", "operate"], queues=["orders*"])
    async with broker.client(await broker.create(token)) as deployer:
        for body, status in (({"queue": "orders"}, 201), ({"queue": "stock"}, 403), ({}, 403)):
            response = await deployer.post(path, json={"text": "v2"} | body)
            assert response.status_code == status, response.text
        of_stock = (await everything.post(path, json={"text": "v3", "queue": "stock"})).json()
        assert (await deployer.delete(f"{path}/{of_stock['id']}")).status_code == 403
        [own] = (await deployer.get(f"{path}?queue=orders")).json()["annotations"]
        assert (own["text"], own["subject"]) == ("v2", "token:deployer")
        assert (await deployer.get(path)).status_code == 403
        assert (await deployer.delete(f"{path}/{own['id']}")).status_code == 200


async def test_tasks_of_matching_run_queues_are_run(broker: GuardedBroker) -> None:
    token = NewToken(name="worker", scopes=["produce", "consume"], queues=["mail*"])
    async with broker.client(await broker.create(token)) as worker:
        queue = "/api/v1/run-queues/mail-1"
        assert (await worker.post(f"{queue}/tasks", json={"payload": 1})).status_code == 201
        [task] = (await worker.post(f"{queue}/dequeue", json={})).json()["tasks"]
        acked = await worker.post(f"/api/v1/tasks/{task['id']}/ack", json={"token": task["token"]})
        assert acked.status_code == 200
        for path in ("/api/v1/run-queues/other/tasks", "/api/v1/run-queues/other/dequeue"):
            assert (await worker.post(path, json={"payload": 1})).status_code == 403
        assert (await worker.post("/api/v1/run-queues/dequeue", json={})).status_code == 403


async def test_the_token_of_one_request_does_not_admit_its_neighbours(broker: GuardedBroker) -> None:
    connection = await RawConnection.open(broker.server)
    valid = f"Authorization: Bearer {await broker.secret(['read'])}"
    other, unknown = f"Authorization: Bearer {await broker.secret(['produce'])}", "Authorization: Bearer pk_x"
    heads = [(valid,), (), (unknown,), (other,), (valid,)]
    connection.send(*(get("/dlq-status", *headers) for headers in heads))
    responses = [await connection.read_response() for _ in heads]
    assert [status for status, _, _ in responses] == [200, 401, 401, 403, 200]
    assert responses[1][1]["www-authenticate"] == "Bearer"


async def test_a_revoked_token_ends_on_a_connection_with_a_known_head(broker: GuardedBroker) -> None:
    token = NewToken(name="producer", scopes=["produce", "consume"])
    secret = await broker.create(token)
    async with broker.client(secret) as client:
        await push(client, 1)
        await push(client, 2)
        [description] = await broker.services.access_tokens.list_tokens(
            DEFAULT_SCOPE, name="producer", limit=1
        )
        await broker.services.access_tokens.revoke(LOCAL_CALLER, description.row.id)
        response = await client.post("/api/v1/push", json={"items": [{"queue": "q", "payload": 3}]})
        assert response.status_code == 401


async def consumer_headers(broker: GuardedBroker, **tokens: NewToken) -> dict[str, str]:
    return {
        f"X-Broker-{kind.capitalize()}-Token": await broker.create(token) for kind, token in tokens.items()
    }


async def test_a_webhook_broker_sends_the_tokens_of_channel_and_consumer(broker: GuardedBroker) -> None:
    url = "/channel/q/consumer/g/dlq"
    scopes = ["operate"]
    channel = NewToken(name="channel", scopes=scopes, queues=["q"])
    consumer = NewToken(name="consumer", scopes=scopes, groups=["g"])
    valid = await consumer_headers(broker, channel=channel, consumer=consumer)
    other_channel = await consumer_headers(
        broker, channel=NewToken(name="other channel", scopes=scopes, queues=["r"])
    )
    reader = await consumer_headers(broker, consumer=NewToken(name="reader", scopes=["read"], groups=["g"]))
    async with broker.client() as client:

        async def status(headers: dict[str, str]) -> int:
            return (await client.delete(url, headers=headers)).status_code

        assert await status({}) == 401
        assert await status({"X-Broker-Channel-Token": valid["X-Broker-Channel-Token"]}) == 401
        assert await status(valid | other_channel) == 403
        assert await status(valid | reader) == 403
        assert await status(valid | {"X-Broker-Channel-Token": "pk_unknown"}) == 401
        assert await status(valid) == 404, "admitted: there is no such queue"
        assert await status(bearer(await broker.secret(["operate"]))) == 404


async def test_payloads_need_a_scope_of_their_own(
    broker: GuardedBroker, everything: httpx.AsyncClient
) -> None:
    await push(everything, {"card": 42})
    async with broker.client(await broker.secret(["read"])) as viewer:

        async def read(client: httpx.AsyncClient) -> list[Any]:
            page = (await client.get("/api/v1/messages", params={"queue": "q"})).json()["messages"]
            path = f"/api/v1/messages/{page[0]['partitionId']}/{page[0]['transactionId']}"
            return [*page, (await client.get(path)).json()]

        assert [message["data"] for message in await read(everything)] == [{"card": 42}] * 2
        for message in await read(viewer):
            assert message["data"] is None
            assert "read:payload" in message["dataProblem"]
        search = await viewer.get("/api/v1/dlq", params={"payload": "card"})
        assert (search.status_code, search.json()["scope"]) == (403, "read:payload")
        search = await viewer.get("/api/v1/messages/search", params={"queue": "q", "text": "card"})
        assert (search.status_code, search.json()["scope"]) == (403, "read:payload")
