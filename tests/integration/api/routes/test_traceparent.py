"""The trace context of a message: where it comes from, and that it follows the message."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import httpx
import pytest

from tests.integration.api import shared_app
from tests.integration.api.calls import ack, configure, get, pop, push
from tests.integration.api.routes.test_bulk_job_routes import run_job

app = shared_app.app

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CONTEXT = f"00-{TRACE_ID}-b7ad6b7169203331-01"
REQUEST_CONTEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"


async def test_an_item_brings_its_own_context_or_has_that_of_the_request(client: httpx.AsyncClient) -> None:
    items = [
        {"queue": "contexts", "payload": 1, "traceparent": CONTEXT},
        {"queue": "contexts", "payload": 2},
        {"queue": "contexts", "payload": 3, "traceparent": "nonsense"},
    ]
    await client.post("/api/v1/push", json={"items": items}, headers={"traceparent": REQUEST_CONTEXT})
    transaction = {"operations": [{"type": "push", "items": items[:2]}]}
    await client.post("/api/v1/transaction", json=transaction, headers={"traceparent": REQUEST_CONTEXT})
    await push(client, 4, queue="contexts")
    messages = await pop(client, "contexts", batch=10)
    assert [message["data"] for message in messages] == [1, 2, 3, 1, 2, 4]
    assert [message.get("traceparent") for message in messages] == [
        *(CONTEXT, REQUEST_CONTEXT, REQUEST_CONTEXT),
        *(CONTEXT, REQUEST_CONTEXT, None),
    ]
    assert messages[0]["traceId"] == str(UUID(TRACE_ID))
    assert "traceparent" not in messages[-1]


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_context_survives_retry_death_and_requeue(client: httpx.AsyncClient, encrypted: bool) -> None:
    queue = f"dying-{encrypted}"
    await configure(client, queue, retryLimit=1, encryptionEnabled=encrypted)
    await push(client, {"city": "Bern"}, queue=queue, traceparent=CONTEXT)
    for attempt in range(2):
        [message] = await pop(client, queue)
        assert (message["retryCount"], message["traceparent"]) == (attempt, CONTEXT)
        await ack(client, message, "failed", error="no stock")
    [dead_letter] = (await get(client, "/dlq", queue=queue))["messages"]
    assert (dead_letter["data"], dead_letter["traceparent"]) == ({"city": "Bern"}, CONTEXT)
    path = f"/messages/{message['partitionId']}/{message['transactionId']}"
    assert (await get(client, path))["traceparent"] == CONTEXT

    assert (await client.post(f"/api/v1{path}/retry", json={})).status_code == 200
    [requeued] = await pop(client, queue)
    assert (requeued["data"], requeued["retryCount"]) == ({"city": "Bern"}, 0)
    assert (requeued["traceparent"], requeued["traceId"]) == (CONTEXT, str(UUID(TRACE_ID)))


async def test_searches_read_the_payload_alone(client: httpx.AsyncClient) -> None:
    await configure(client, "found", retryLimit=0, indexKeys=["$.city"])
    # The bytes of this context are letters, which no search for a text must find.
    letters = f"00-{b'abcdefghijklmnop'.hex()}-{b'qrstuvwx'.hex()}-01"
    await push(client, {"city": "Bern"}, queue="found", traceparent=letters)

    async def find(path: str, **params: Any) -> list[Any]:
        page = await get(client, path, queue="found", **params)
        return [message["data"]["city"] for message in page["messages"]]

    assert await find("/messages/search", text="bern") == ["Bern"]
    assert await find("/messages/search", text="klm") == []
    assert await find("/messages/search", key="$.city", value="Bern") == ["Bern"]
    body = {"subject": "messages", "kind": "purge", "queue": "found", "payload": "klm"}
    assert (await run_job(client, **body))["changed"] == 0
    [message] = await pop(client, "found")
    await ack(client, message, "failed")
    assert await find("/dlq", payload="Bern") == ["Bern"]
    assert await find("/dlq", payload="klm") == []
