"""Bodies, payloads, numbers and times that no route may answer with an internal error."""

from __future__ import annotations

import httpx
import pytest

from tests.integration.api import shared_app
from tests.integration.api.calls import assert_problem, pop_payloads

app = shared_app.app

DEEP = b"[" * 50_000 + b"]" * 50_000
LONG_NUMBER = "1" * 4_301
EDGES = ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
JSON = {"content-type": "application/json"}


async def post(client: httpx.AsyncClient, path: str, body: bytes) -> httpx.Response:
    return await client.post(path, content=body, headers=JSON)


async def test_a_payload_that_is_not_utf8_fails_its_item_only(client: httpx.AsyncClient) -> None:
    body = b'{"items":[{"queue":"texts","payload":"\xff"},{"queue":"texts","payload":"gr\xc3\xbcn"}]}'
    response = await post(client, "/api/v1/push", body)
    assert response.status_code == 201, response.text
    failed, queued = response.json()
    assert failed["status"] == "failed"
    assert "UTF-8" in failed["error"]
    assert queued["status"] == "queued"
    popped = (await client.get("/api/v1/pop/queue/texts?batch=10&autoAck=true")).json()
    assert [message["data"] for message in popped["messages"]] == ["grün"]


async def test_a_push_of_one_payload_that_is_not_utf8_is_refused(client: httpx.AsyncClient) -> None:
    response = await post(client, "/api/v1/push", b'{"items":[{"queue":"q","payload":"\xff"}]}')
    assert response.status_code == 422
    assert "UTF-8" in response.json()["detail"]


async def test_a_name_that_is_not_utf8_fails_its_item_only(client: httpx.AsyncClient) -> None:
    body = b'{"items":[{"queue":"\xff","payload":1},{"queue":"names","payload":2}]}'
    failed, queued = (await post(client, "/api/v1/push", body)).json()
    assert failed["status"] == "failed"
    assert "UTF-8" in failed["error"]
    assert queued["status"] == "queued"


async def test_a_task_that_is_not_utf8_is_refused(client: httpx.AsyncClient) -> None:
    response = await post(client, "/api/v1/run-queues/jobs/tasks", b'{"payload":"\xff"}')
    assert response.status_code == 422, response.text
    assert "UTF-8" in response.json()["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/push",
        "/api/v1/ack",
        "/api/v1/ack/batch",
        "/api/v1/transaction",
        "/api/v1/configure",
        "/api/v1/traces",
        "/api/v1/run-queues/jobs/tasks",
        "/api/v1/consumer-groups/g/queues/q/seek",
    ],
)
@pytest.mark.parametrize("value", [DEEP, b"9" * 4_301, b'"\xff"'], ids=["deep", "long number", "not UTF-8"])
async def test_a_hostile_value_in_a_body_is_no_internal_error(
    client: httpx.AsyncClient, path: str, value: bytes
) -> None:
    """Only a payload may be any JSON, also a number that few languages can represent."""
    keys = (b"items", b"acknowledgments", b"operations", b"options", b"data", b"payload", b"timestamp")
    for body in (value, *(b'{"%s":%s}' % (key, value) for key in keys)):
        response = await post(client, path, body)
        is_valid_payload = body.startswith(b'{"payload":9') and path.endswith("/tasks")
        assert response.status_code in ((201,) if is_valid_payload else (400, 422)), response.text[:300]


@pytest.mark.parametrize(
    "path",
    [
        f"/api/v1/pop/queue/q?batch={LONG_NUMBER}",
        f"/api/v1/pop/queue/q?wait=true&timeout={LONG_NUMBER}",
        f"/api/v1/messages?queue=q&limit={LONG_NUMBER}",
        f"/api/v1/messages/{LONG_NUMBER}/t",
    ],
)
async def test_a_number_of_thousands_of_digits_is_refused(client: httpx.AsyncClient, path: str) -> None:
    response = await client.get(path)
    assert response.status_code == 422, response.text[:300]
    assert len(response.text) < 1_000


async def test_an_id_of_thousands_of_digits_is_refused(client: httpx.AsyncClient) -> None:
    trace = {"transactionId": "t", "partitionId": LONG_NUMBER, "data": 1}
    assert (await client.post("/api/v1/traces", json=trace)).status_code == 422
    ack = {"transactionId": "t", "partitionId": LONG_NUMBER, "leaseId": "x", "status": "completed"}
    assert (await client.post("/api/v1/ack", json=ack)).status_code == 422


@pytest.mark.parametrize("time", [*EDGES, "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/queues/q/metrics?from={}",
        "/api/v1/queues/q/metrics?to={}&period=1h",
        "/api/v1/status/analytics?from={}",
        "/api/v1/status/analytics?to={}",
        "/api/v1/dlq?from={}",
        "/api/v1/analytics/worker-metrics?to={}&bucket=7",
    ],
)
async def test_a_time_at_the_edge_of_the_calendar_is_refused(
    client: httpx.AsyncClient, path: str, time: str
) -> None:
    response = await client.get(path.format(time.replace("+", "%2B")))
    assert response.status_code == 422, (response.status_code, response.text[:300])


@pytest.mark.parametrize("time", EDGES)
async def test_a_start_past_the_calendar_is_refused(client: httpx.AsyncClient, time: str) -> None:
    queue = f"calendar-{time[:4]}"
    await client.post("/api/v1/push", json={"items": [{"queue": queue, "payload": 1}]})
    pop = await client.get(
        f"/api/v1/pop/queue/{queue}", params={"consumerGroup": "g", "subscriptionFrom": time}
    )
    assert pop.status_code == 422, pop.text
    assert (await client.get(f"/api/v1/pop/queue/{queue}?consumerGroup=g")).status_code == 200
    seek = await client.post(f"/api/v1/consumer-groups/g/queues/{queue}/seek", json={"timestamp": time})
    assert seek.status_code == 422, seek.text


LONE_SURROGATES = {
    "payload": rb'{"queue": "q", "payload": "\ud800"}',
    "payload, second half": rb'{"queue": "q", "payload": {"a": ["\udc00"]}}',
    "payload, two first halves": rb'{"queue": "q", "payload": "\\\\\uD83D\uD83D\uDE00"}',
    "queue": rb'{"queue": "q\ud800", "payload": 1}',
    "transactionId": rb'{"queue": "q", "payload": 1, "transactionId": "\udfff"}',
    "unknown field": rb'{"queue": "q", "payload": 1, "\ud800": 1}',
}


@pytest.mark.parametrize("item", LONE_SURROGATES.values(), ids=LONE_SURROGATES)
async def test_a_lone_surrogate_fails_its_item_alone(client: httpx.AsyncClient, item: bytes) -> None:
    valid = rb'{"queue": "q", "payload": "\ud83d\ude00 \\ud800"}'
    body = b'{"items": [%s, %s]}' % (item, valid)
    response = await post(client, "/api/v1/push", body)
    assert response.status_code == 201, response.text
    failed, queued = response.json()
    assert (failed["status"], queued["status"]) == ("failed", "queued")
    assert "lone surrogate" in failed["error"]
    assert await pop_payloads(client, autoAck="true") == ["\U0001f600 \\ud800"]
    response = await post(client, "/api/v1/push", b'{"items": [%s]}' % item)
    assert "lone surrogate" in assert_problem(response, 422, "invalid_request")


async def test_a_lone_surrogate_elsewhere_is_named_in_the_error(client: httpx.AsyncClient) -> None:
    response = await post(client, "/api/v1/configure", rb'{"queue": "\ud800"}')
    assert "lone surrogate" in assert_problem(response, 400, "malformed_body")


async def test_an_item_without_a_payload_is_null(client: httpx.AsyncClient) -> None:
    response = await client.post("/api/v1/push", json={"items": [{"queue": "q"}]})
    assert response.status_code == 201, response.text
    assert await pop_payloads(client, autoAck="true") == [None]
