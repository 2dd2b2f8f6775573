"""Dead letters over HTTP: counts, groups of errors, letters one by one, jobs, and who may."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx
import pytest
from fastapi import FastAPI

from penstock.api.app import create_app
from penstock.config import Settings
from penstock.errors import ConfigError
from tests.integration.api.calls import (
    assert_problem,
    configure,
    get,
    pop,
    pop_payloads,
    push,
    scrape_metrics,
)
from tests.waiting import wait_until_async


async def kill(
    client: httpx.AsyncClient,
    *payloads: Any,
    queue: str = "q",
    error: str = "boom",
    group: str = "g",
    **item: Any,
) -> list[dict[str, Any]]:
    """Push messages and let a group give up on each; their letters, the first one first."""
    await push(client, *payloads, queue=queue, **item)
    await kill_waiting(client, queue, error, group)
    found: list[dict[str, Any]] = (await get(client, "/dlq", queue=queue, consumerGroup=group))["messages"]
    return found[::-1]


async def kill_waiting(client: httpx.AsyncClient, queue: str, error: str, group: str) -> None:
    while messages := await pop(client, queue, consumerGroup=group, batch=100):
        acks = [
            {key: message[key] for key in ("transactionId", "partitionId", "leaseId")}
            | {"status": "dlq", "error": error}
            for message in messages
        ]
        answer = await client.post(
            "/api/v1/ack/batch", json={"acknowledgments": acks, "consumerGroup": group}
        )
        assert answer.status_code == 200, answer.text


async def ended(client: httpx.AsyncClient, job: dict[str, Any]) -> dict[str, Any]:
    async def has_ended() -> dict[str, Any] | None:
        now: dict[str, Any] = await get(client, f"/jobs/{job['id']}")
        return now if now["state"] not in ("waiting", "running") else None

    found = await wait_until_async(has_ended, 20, "the job ends")
    assert found is not None
    return found


async def work(client: httpx.AsyncClient, kind: str, **body: Any) -> dict[str, Any]:
    answer = await client.post(f"/api/v1/dlq/{kind}", json=body)
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/api/v1/jobs/{job['id']}"
    return job


async def test_status_has_the_counts_of_every_consumer_page_by_page(client: httpx.AsyncClient) -> None:
    await kill(client, 1, 2, 3)
    await kill(client, 4, queue="r", group="h")
    body = (await client.get("/dlq-status")).json()
    assert body["consumers"][:2] == [  # run queues come after them
        {"channelId": "q", "channelName": "q", "consumerId": "g", "consumerName": "g", "deadCount": 3},
        {"channelId": "r", "channelName": "r", "consumerId": "h", "consumerName": "h", "deadCount": 1},
    ]
    assert body["asOf"].endswith("Z")
    page = (await client.get("/dlq-status", params={"limit": 1, "offset": 1})).json()
    assert [row["channelId"] for row in page["consumers"]] == ["r"]
    assert page["pagination"] == {"limit": 1, "offset": 1, "total": body["pagination"]["total"]}
    own = await get(client, "/dlq/status", queue="q")
    [row] = own["groups"]
    assert (row["consumerGroup"], row["deadLetters"]) == ("g", 3)
    assert row["oldestFailedAt"] <= own["asOf"]


async def test_prometheus_has_the_counts_and_ages(client: httpx.AsyncClient) -> None:
    [letter] = await kill(client, 1)
    metrics = await scrape_metrics(client)
    assert metrics["dead_job_count"][("q", "g")] == 1, "by channel and consumer"
    assert metrics["penstock_dlq_messages"][("g", "q")] == 1, "by group and queue"
    assert 0 <= metrics["penstock_dlq_oldest_message_age_seconds"][("g", "q")] < 30
    assert metrics["penstock_dlq_count_drift"] == {(): 0}
    assert (await client.delete(f"/api/v1/dlq/letters/{letter['letterId']}")).json()["deleted"] == 1
    metrics = await scrape_metrics(client)
    assert metrics["dead_job_count"][("q", "g")] == 0
    assert metrics["penstock_dlq_oldest_message_age_seconds"] == {}


async def test_letters_are_grouped_by_error_and_a_group_can_be_listed(client: httpx.AsyncClient) -> None:
    await kill(client, 1, 2, error="timeout calling payments after 30 ms")
    await kill(client, 3, error="timeout calling payments after 31 ms")
    await kill(client, 4, error="")
    often, seldom = (await get(client, "/dlq/groups", hours=2))["groups"]
    assert (often["error"], often["deadLetters"]) == ("timeout calling payments after <n> ms", 3)
    assert sum(often["trend"]) == 3
    assert len(often["trend"]) == 2
    assert often["example"] == "timeout calling payments after 31 ms"
    assert often["firstFailedAt"] <= often["lastFailedAt"]
    assert (seldom["error"], seldom["consumerGroups"]) == ("no error was given", ["g"])
    page = await get(client, "/dlq", errorGroup=often["errorGroup"])
    assert [message["data"] for message in page["messages"]] == [3, 2, 1]


async def test_letters_are_searched_and_paged_by_cursor(client: httpx.AsyncClient) -> None:
    await kill(client, {"user": "Ann"}, {"user": "Bob"}, {"user": "Cy"}, error="Disk FULL")

    async def found(**params: Any) -> list[str]:
        return [message["data"]["user"] for message in (await get(client, "/dlq", **params))["messages"]]

    assert await found(error="disk full") == ["Cy", "Bob", "Ann"]
    assert await found(payload='"Bob"') == ["Bob"]
    assert await found(payload="Zoe") == []
    first = await get(client, "/dlq", error="disk", limit=2)
    assert (first["total"], first["totalIsExact"]) == (None, False)
    second = await get(client, "/dlq", error="disk", limit=2, cursor=first["nextCursor"])
    assert [message["data"]["user"] for message in second["messages"]] == ["Ann"]
    assert second["nextCursor"] is None
    bad = await client.get("/api/v1/dlq", params={"cursor": "x.y"})
    assert "nextCursor" in assert_problem(bad, 422, "invalid_request")


async def test_a_requeued_letter_keeps_its_lineage_when_it_dies_again(client: httpx.AsyncClient) -> None:
    [letter] = await kill(client, {"n": 1}, transactionId="order-7", partition="p")
    assert (letter["timesDead"], letter["firstTransactionId"]) == (1, "order-7")
    answer = (await client.post(f"/api/v1/dlq/letters/{letter['letterId']}/requeue")).json()
    assert (answer["queue"], answer["partition"], answer["requeueOf"]) == ("q", "p", "order-7")
    gone = await client.get(f"/api/v1/dlq/letters/{letter['letterId']}")
    assert_problem(gone, 404, "unknown_message")
    await kill_waiting(client, "q", "again", "g")
    [again] = (await get(client, "/dlq"))["messages"]
    again = await get(client, f"/dlq/letters/{again['letterId']}")
    assert (again["timesDead"], again["totalAttempts"], again["data"]) == (2, 2, {"n": 1})
    assert (again["firstTransactionId"], again["firstEnqueuedAt"]) == ("order-7", letter["createdAt"])
    assert again["transactionId"] == answer["transactionId"]


async def test_a_letter_of_a_queue_that_is_encrypted_by_now_is_sealed_before_it_goes_back(
    client: httpx.AsyncClient, database_url: str
) -> None:
    letters = await kill(client, {"card": 1}, {"card": 2})
    assert (await configure(client, encryptionEnabled=True)).status_code == 200
    await client.post(f"/api/v1/dlq/letters/{letters[0]['letterId']}/requeue")
    assert (await ended(client, await work(client, "requeue", queue="q")))["changed"] == 1
    assert await pop_payloads(client, consumerGroup="g", batch=10) == [{"card": 1}, {"card": 2}]
    connection = await asyncpg.connect(database_url)
    stored = await connection.fetch("SELECT payloads FROM penstock.log ORDER BY first_offset DESC LIMIT 2")
    await connection.close()
    assert all(payload.startswith(b"\x01") for row in stored for payload in row["payloads"])


async def test_a_job_is_tried_out_first_then_done_and_told(client: httpx.AsyncClient) -> None:
    await kill(client, *range(5), error="timeout")
    await kill(client, 5, error="declined")
    dry = (await client.post("/api/v1/dlq/requeue", json={"error": "timeout", "dryRun": True})).json()
    assert (dry["total"], dry["totalIsExact"], dry["dryRun"]) == (5, True, True)
    assert [letter["data"] for letter in dry["latest"]] == [4, 3, 2, 1, 0]
    assert (await get(client, "/jobs"))["jobs"] == []
    job = await ended(client, await work(client, "requeue", error="timeout"))
    assert (job["state"], job["changed"], job["lookedAt"], job["note"]) == ("done", 5, 6, None)
    assert await pop_payloads(client, consumerGroup="g", batch=10) == [0, 1, 2, 3, 4]
    rest = await ended(client, await work(client, "purge", all=True))
    assert (rest["kind"], rest["changed"]) == ("purge", 1)
    assert [told["id"] for told in (await get(client, "/jobs"))["jobs"]] == [rest["id"], job["id"]]


async def test_a_selection_is_requeued_and_purged(client: httpx.AsyncClient) -> None:
    letters = await kill(client, *range(6))
    ids = [letter["letterId"] for letter in letters]
    assert (await ended(client, await work(client, "requeue", letterIds=ids[:2])))["changed"] == 2
    assert (await ended(client, await work(client, "purge", letterIds=[*ids[:4], "999999"])))["changed"] == 2
    assert [letter["data"] for letter in (await get(client, "/dlq"))["messages"]] == [5, 4]


async def test_a_job_has_a_rate_and_can_be_cancelled(client: httpx.AsyncClient) -> None:
    await kill(client, *range(30))
    job = await work(client, "purge", queue="q", ratePerSecond=2)

    async def begun() -> bool:
        return bool((await get(client, f"/jobs/{job['id']}"))["changed"])

    await wait_until_async(begun, 10, "the job begins")
    cancelled = (await client.post(f"/api/v1/jobs/{job['id']}/cancel")).json()
    assert cancelled["state"] == "cancelled"
    assert 0 < cancelled["changed"] < 30
    again = (await client.post(f"/api/v1/jobs/{job['id']}/cancel")).json()
    assert again == cancelled
    left = (await get(client, "/dlq/status"))["groups"][0]["deadLetters"]
    assert left == 30 - cancelled["changed"]


async def test_a_requeue_waits_while_the_queue_is_full(client: httpx.AsyncClient) -> None:
    await kill(client, 1, 2)
    await configure(client, maxSize=1)
    job = await work(client, "requeue", queue="q")

    async def waits() -> bool:
        return "maxSize" in ((await get(client, f"/jobs/{job['id']}"))["note"] or "")

    await wait_until_async(waits, 10, "the job says that it waits")
    assert await pop_payloads(client, consumerGroup="g", autoAck="true") == [1]
    assert (await ended(client, job))["changed"] == 2
    assert await pop_payloads(client, consumerGroup="g", autoAck="true") == [2]


UNCLEAR: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, "all"),
    ({"all": True, "queue": "q"}, "all"),
    ({"letterIds": ["1"], "queue": "q"}, "letterIds"),
    ({"letterIds": []}, "letterIds"),
    ({"letterIds": ["x"]}, "letterIds"),
    ({"queue": "a/b"}, "queue"),
    ({"queue": "q", "from": "yesterday"}, "from"),
    ({"queue": "q", "ratePerSecond": 0}, "ratePerSecond"),
    ({"error": ""}, "error"),
    ({"payload": "a\0b"}, "payload"),
)


async def test_work_that_is_not_clear_is_refused(client: httpx.AsyncClient) -> None:
    for body, field in UNCLEAR:
        answer = await client.post("/api/v1/dlq/purge", json=body)
        assert_problem(answer, 422, "invalid_request")
        assert answer.json()["field"] == field, body
    assert (await get(client, "/jobs"))["jobs"] == []


async def test_unknown_letters_and_jobs_are_told(client: httpx.AsyncClient) -> None:
    nil = "00000000-0000-0000-0000-000000000000"
    for method, path, code in (
        ("GET", "/api/v1/dlq/letters/7", "unknown_message"),
        ("DELETE", "/api/v1/dlq/letters/7", "unknown_message"),
        ("POST", "/api/v1/dlq/letters/7/requeue", "unknown_message"),
        ("GET", f"/api/v1/jobs/{nil}", "unknown_job"),
        ("POST", f"/api/v1/jobs/{nil}/cancel", "unknown_job"),
        ("DELETE", "/channel/q/consumer/g/dlq", "unknown_group"),
        ("DELETE", "/channel/q/consumer/g/job/7", "unknown_message"),
    ):
        assert_problem(await client.request(method, path), 404, code)


async def test_a_consumer_is_purged_and_one_of_its_jobs_deleted(client: httpx.AsyncClient) -> None:
    letters = await kill(client, 1, 2, 3)
    await kill_waiting(client, "q", "boom", "other")
    one = letters[0]["letterId"]
    wrong = await client.delete(f"/channel/q/consumer/other/job/{one}")
    assert_problem(wrong, 404, "unknown_message")
    assert (await client.delete(f"/channel/q/consumer/g/job/{one}")).json() == {
        "success": True, "deleted": 1, "jobId": one
    }  # fmt: skip
    answer = await client.delete("/channel/q/consumer/g/dlq")
    assert answer.status_code == 202
    assert (await ended(client, answer.json()))["changed"] == 2
    consumers = (await client.get("/dlq-status")).json()["consumers"]
    counts = {row["consumerId"]: row["deadCount"] for row in consumers if row["channelId"] == "q"}
    assert counts == {"g": 0, "other": 3}


@asynccontextmanager
async def guarded(
    app: FastAPI, settings: Settings, host: str = "127.0.0.1"
) -> AsyncIterator[httpx.AsyncClient]:
    """The same services behind other settings, and a caller elsewhere."""
    behind = create_app(settings)
    behind.state.services = app.state.services
    transport = httpx.ASGITransport(behind, raise_app_exceptions=False, client=(host, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://penstock") as opened:
        yield opened


OURS = (
    ("GET", "/dlq-status"),
    ("GET", "/api/v1/dlq"),
    ("GET", "/api/v1/dlq/status"),
    ("GET", "/api/v1/dlq/groups"),
    ("GET", "/api/v1/dlq/letters/1"),
    ("DELETE", "/api/v1/dlq/letters/1"),
    ("POST", "/api/v1/dlq/letters/1/requeue"),
    ("POST", "/api/v1/dlq/requeue"),
    ("POST", "/api/v1/dlq/purge"),
    ("GET", "/api/v1/jobs"),
    ("GET", "/api/v1/jobs/00000000-0000-0000-0000-000000000000"),
    ("POST", "/api/v1/jobs/00000000-0000-0000-0000-000000000000/cancel"),
)
ACTING = tuple((method, path) for method, path in OURS if method != "GET" or path == "/dlq-status")


async def test_our_routes_ask_for_one_of_our_tokens(app: FastAPI, settings: Settings) -> None:
    tokens = settings.model_copy(update={"dlq_tokens": "ops=s3cret, ci=other="})
    async with guarded(app, tokens, "192.0.2.7") as client:
        for method, path in OURS:
            missing = await client.request(method, path, json={"queue": "q", "dryRun": True})
            assert "Bearer" in assert_problem(missing, 401, "unauthorized"), path
            assert missing.headers["www-authenticate"] == "Bearer"
            for wrong in ("s3cre", "s3cret2", "ops=s3cret"):
                answer = await client.request(method, path, headers={"authorization": f"Bearer {wrong}"})
                assert_problem(answer, 403, "forbidden")
            for right in ("s3cret", "other="):
                answer = await client.request(
                    method,
                    path,
                    headers={"authorization": f"Bearer {right}"},
                    json={"queue": "q", "dryRun": True},
                )
                assert answer.status_code in (200, 404), (path, answer.text)


async def test_without_tokens_only_callers_here_may_act(app: FastAPI, settings: Settings) -> None:
    async with guarded(app, settings, "192.0.2.7") as elsewhere:
        for method, path in (*ACTING, ("DELETE", "/channel/q/consumer/g/dlq")):
            answer = await elsewhere.request(method, path, json={"queue": "q"})
            assert "PENSTOCK_DLQ_" in assert_problem(answer, 403, "forbidden"), path
        assert (await elsewhere.get("/api/v1/dlq")).status_code == 200
    async with guarded(app, settings, "::1") as here:
        assert (await here.get("/dlq-status")).status_code == 200


async def test_a_consumer_needs_the_tokens_of_channel_and_consumer(app: FastAPI, settings: Settings) -> None:
    tokens = settings.model_copy(
        update={"dlq_channel_tokens": "q=channel,r=other", "dlq_consumer_tokens": "*=consumer"}
    )
    channel, consumer = "X-Broker-Channel-Token", "X-Broker-Consumer-Token"
    async with guarded(app, tokens, "192.0.2.7") as client:
        [letter] = await kill(client, 1)
        path = f"/channel/q/consumer/g/job/{letter['letterId']}"
        for headers, status in (
            ({}, 401),
            ({channel: "channel"}, 401),
            ({consumer: "consumer"}, 401),
            ({channel: "other", consumer: "consumer"}, 403),
            ({channel: "channel", consumer: "channel"}, 403),
        ):
            for where in (path, "/channel/q/consumer/g/dlq"):
                answer = await client.delete(where, headers=headers)
                assert_problem(answer, status, {401: "unauthorized", 403: "forbidden"}[status])
        unlisted = await client.delete(
            "/channel/z/consumer/g/dlq", headers={channel: "channel", consumer: "consumer"}
        )
        assert_problem(unlisted, 403, "forbidden")
        done = await client.delete(path, headers={channel: "channel", consumer: "consumer"})
        assert done.status_code == 200


def test_tokens_that_cannot_be_read_are_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="PENSTOCK_DLQ_TOKENS must be name=secret"):
        create_app(Settings(dlq_tokens="s3cret"))


async def test_the_description_tells_of_bodies(client: httpx.AsyncClient) -> None:
    described = (await client.get("/openapi.json")).json()
    body = described["paths"]["/api/v1/dlq/requeue"]["post"]["requestBody"]["content"]["application/json"]
    assert {"letterIds", "queue", "from", "dryRun", "ratePerSecond"} <= set(body["schema"]["properties"])
    assert json.dumps(body).count("$ref") == 0
