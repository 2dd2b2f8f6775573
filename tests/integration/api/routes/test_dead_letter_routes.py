"""The routes for dead letters: counts, error groups, single dead letters, jobs and access control."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx
from fastapi import FastAPI

from penstock.api.app import create_app
from penstock.config import Settings
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


async def dead_letter_messages(
    client: httpx.AsyncClient,
    *payloads: Any,
    queue: str = "q",
    error: str = "boom",
    group: str = "g",
    **item: Any,
) -> list[dict[str, Any]]:
    """Push messages and move each to the dead letters of a group; the dead letters, the first one first."""
    await push(client, *payloads, queue=queue, **item)
    await dead_letter_waiting(client, queue, error, group)
    page = await get(client, "/dlq", queue=queue, consumerGroup=group)
    dead_letters: list[dict[str, Any]] = page["messages"]
    return dead_letters[::-1]


async def dead_letter_waiting(client: httpx.AsyncClient, queue: str, error: str, group: str) -> None:
    while messages := await pop(client, queue, consumerGroup=group, batch=100):
        acks = [
            {key: message[key] for key in ("transactionId", "partitionId", "leaseId")}
            | {"status": "dlq", "error": error}
            for message in messages
        ]
        response = await client.post(
            "/api/v1/ack/batch", json={"acknowledgments": acks, "consumerGroup": group}
        )
        assert response.status_code == 200, response.text


async def wait_until_ended(client: httpx.AsyncClient, job: dict[str, Any]) -> dict[str, Any]:
    async def has_ended() -> dict[str, Any] | None:
        current: dict[str, Any] = await get(client, f"/jobs/{job['id']}")
        return current if current["state"] not in ("waiting", "running") else None

    ended_job = await wait_until_async(has_ended, 20, "the job ends")
    assert ended_job is not None
    return ended_job


async def create_job(client: httpx.AsyncClient, kind: str, **body: Any) -> dict[str, Any]:
    response = await client.post(f"/api/v1/dlq/{kind}", json=body)
    assert response.status_code == 202, response.text
    job: dict[str, Any] = response.json()
    assert response.headers["location"] == f"/api/v1/jobs/{job['id']}"
    return job


async def test_status_pages_through_the_counts_of_every_consumer(client: httpx.AsyncClient) -> None:
    await dead_letter_messages(client, 1, 2, 3)
    await dead_letter_messages(client, 4, queue="r", group="h")
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


async def test_prometheus_exports_counts_and_ages(client: httpx.AsyncClient) -> None:
    [dead_letter] = await dead_letter_messages(client, 1)
    metrics = await scrape_metrics(client)
    assert metrics["dead_job_count"][("q", "g")] == 1, "by channel and consumer"
    assert metrics["penstock_dlq_messages"][("g", "q")] == 1, "by group and queue"
    assert 0 <= metrics["penstock_dlq_oldest_message_age_seconds"][("g", "q")] < 30
    assert metrics["penstock_dlq_count_drift"] == {(): 0}
    assert (await client.delete(f"/api/v1/dlq/letters/{dead_letter['letterId']}")).json()["deleted"] == 1
    metrics = await scrape_metrics(client)
    assert metrics["dead_job_count"][("q", "g")] == 0
    assert metrics["penstock_dlq_oldest_message_age_seconds"] == {}


async def test_dead_letters_are_grouped_by_error_and_listed_by_group(client: httpx.AsyncClient) -> None:
    await dead_letter_messages(client, 1, 2, error="timeout calling payments after 30 ms")
    await dead_letter_messages(client, 3, error="timeout calling payments after 31 ms")
    await dead_letter_messages(client, 4, error="")
    frequent, rare = (await get(client, "/dlq/groups", hours=2))["groups"]
    assert (frequent["error"], frequent["deadLetters"]) == ("timeout calling payments after <n> ms", 3)
    assert sum(frequent["trend"]) == 3
    assert len(frequent["trend"]) == 2
    assert frequent["example"] == "timeout calling payments after 31 ms"
    assert frequent["firstFailedAt"] <= frequent["lastFailedAt"]
    assert (rare["error"], rare["consumerGroups"]) == ("no error was given", ["g"])
    page = await get(client, "/dlq", errorGroup=frequent["errorGroup"])
    assert [message["data"] for message in page["messages"]] == [3, 2, 1]


async def test_dead_letters_are_searched_and_paged_by_cursor(client: httpx.AsyncClient) -> None:
    await dead_letter_messages(client, {"user": "Ann"}, {"user": "Bob"}, {"user": "Cy"}, error="Disk FULL")

    async def search(**params: Any) -> list[str]:
        return [message["data"]["user"] for message in (await get(client, "/dlq", **params))["messages"]]

    assert await search(error="disk full") == ["Cy", "Bob", "Ann"]
    assert await search(payload='"Bob"') == ["Bob"]
    assert await search(payload="Zoe") == []
    first = await get(client, "/dlq", error="disk", limit=2)
    assert (first["total"], first["totalIsExact"]) == (None, False)
    second = await get(client, "/dlq", error="disk", limit=2, cursor=first["nextCursor"])
    assert [message["data"]["user"] for message in second["messages"]] == ["Ann"]
    assert second["nextCursor"] is None
    invalid = await client.get("/api/v1/dlq", params={"cursor": "x.y"})
    assert "nextCursor" in assert_problem(invalid, 422, "invalid_request")


async def test_a_requeued_message_keeps_its_history_when_it_dies_again(client: httpx.AsyncClient) -> None:
    [dead_letter] = await dead_letter_messages(client, {"n": 1}, transactionId="order-7", partition="p")
    assert (dead_letter["timesDead"], dead_letter["firstTransactionId"]) == (1, "order-7")
    requeued = (await client.post(f"/api/v1/dlq/letters/{dead_letter['letterId']}/requeue")).json()
    assert (requeued["queue"], requeued["partition"], requeued["requeueOf"]) == ("q", "p", "order-7")
    deleted = await client.get(f"/api/v1/dlq/letters/{dead_letter['letterId']}")
    assert_problem(deleted, 404, "unknown_message")
    await dead_letter_waiting(client, "q", "again", "g")
    [again] = (await get(client, "/dlq"))["messages"]
    again = await get(client, f"/dlq/letters/{again['letterId']}")
    assert (again["timesDead"], again["totalAttempts"], again["data"]) == (2, 2, {"n": 1})
    assert (again["firstTransactionId"], again["firstEnqueuedAt"]) == ("order-7", dead_letter["createdAt"])
    assert again["transactionId"] == requeued["transactionId"]


async def test_requeue_encrypts_the_payload_of_a_queue_that_became_encrypted(
    client: httpx.AsyncClient, database_url: str
) -> None:
    dead_letters = await dead_letter_messages(client, {"card": 1}, {"card": 2})
    assert (await configure(client, encryptionEnabled=True)).status_code == 200
    await client.post(f"/api/v1/dlq/letters/{dead_letters[0]['letterId']}/requeue")
    assert (await wait_until_ended(client, await create_job(client, "requeue", queue="q")))["changed"] == 1
    assert await pop_payloads(client, consumerGroup="g", batch=10) == [{"card": 1}, {"card": 2}]
    connection = await asyncpg.connect(database_url)
    stored = await connection.fetch("SELECT payloads FROM penstock.log ORDER BY first_offset DESC LIMIT 2")
    await connection.close()
    assert all(payload.startswith(b"\x01") for row in stored for payload in row["payloads"])


async def test_a_dry_run_changes_nothing_and_a_job_reports_its_result(client: httpx.AsyncClient) -> None:
    await dead_letter_messages(client, *range(5), error="timeout")
    await dead_letter_messages(client, 5, error="declined")
    dry_run = (await client.post("/api/v1/dlq/requeue", json={"error": "timeout", "dryRun": True})).json()
    assert (dry_run["total"], dry_run["totalIsExact"], dry_run["dryRun"]) == (5, True, True)
    assert [letter["data"] for letter in dry_run["latest"]] == [4, 3, 2, 1, 0]
    assert (await get(client, "/jobs"))["jobs"] == []
    job = await wait_until_ended(client, await create_job(client, "requeue", error="timeout"))
    assert (job["state"], job["changed"], job["lookedAt"], job["note"]) == ("done", 5, 6, None)
    assert await pop_payloads(client, consumerGroup="g", batch=10) == [0, 1, 2, 3, 4]
    purge = await wait_until_ended(client, await create_job(client, "purge", all=True))
    assert (purge["kind"], purge["changed"]) == ("purge", 1)
    assert [listed["id"] for listed in (await get(client, "/jobs"))["jobs"]] == [purge["id"], job["id"]]


async def test_selected_dead_letters_are_requeued_and_purged(client: httpx.AsyncClient) -> None:
    dead_letters = await dead_letter_messages(client, *range(6))
    ids = [letter["letterId"] for letter in dead_letters]
    assert (await wait_until_ended(client, await create_job(client, "requeue", letterIds=ids[:2])))[
        "changed"
    ] == 2
    assert (
        await wait_until_ended(client, await create_job(client, "purge", letterIds=[*ids[:4], "999999"]))
    )["changed"] == 2
    assert [letter["data"] for letter in (await get(client, "/dlq"))["messages"]] == [5, 4]


async def test_a_job_has_a_rate_and_can_be_cancelled(client: httpx.AsyncClient) -> None:
    await dead_letter_messages(client, *range(30))
    job = await create_job(client, "purge", queue="q", ratePerSecond=2)

    async def has_changed_some() -> bool:
        return bool((await get(client, f"/jobs/{job['id']}"))["changed"])

    await wait_until_async(has_changed_some, 10, "the job changes dead letters")
    cancelled = (await client.post(f"/api/v1/jobs/{job['id']}/cancel")).json()
    assert cancelled["state"] == "cancelled"
    assert 0 < cancelled["changed"] < 30
    again = (await client.post(f"/api/v1/jobs/{job['id']}/cancel")).json()
    assert again == cancelled
    remaining = (await get(client, "/dlq/status"))["groups"][0]["deadLetters"]
    assert remaining == 30 - cancelled["changed"]


async def test_a_requeue_waits_while_the_queue_is_full(client: httpx.AsyncClient) -> None:
    await dead_letter_messages(client, 1, 2)
    await configure(client, maxSize=1)
    job = await create_job(client, "requeue", queue="q")

    async def is_waiting() -> bool:
        return "maxSize" in ((await get(client, f"/jobs/{job['id']}"))["note"] or "")

    await wait_until_async(is_waiting, 10, "the job reports that it waits")
    assert await pop_payloads(client, consumerGroup="g", autoAck="true") == [1]
    assert (await wait_until_ended(client, job))["changed"] == 2
    assert await pop_payloads(client, consumerGroup="g", autoAck="true") == [2]


INVALID_SELECTIONS: tuple[tuple[dict[str, Any], str], ...] = (
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


async def test_an_invalid_selection_is_refused(client: httpx.AsyncClient) -> None:
    for body, field in INVALID_SELECTIONS:
        response = await client.post("/api/v1/dlq/purge", json=body)
        assert_problem(response, 422, "invalid_request")
        assert response.json()["field"] == field, body
    assert (await get(client, "/jobs"))["jobs"] == []


async def test_unknown_dead_letters_and_jobs_get_404(client: httpx.AsyncClient) -> None:
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


async def test_a_consumer_is_purged_and_a_single_job_deleted(client: httpx.AsyncClient) -> None:
    dead_letters = await dead_letter_messages(client, 1, 2, 3)
    await dead_letter_waiting(client, "q", "boom", "other")
    job_id = dead_letters[0]["letterId"]
    wrong_consumer = await client.delete(f"/channel/q/consumer/other/job/{job_id}")
    assert_problem(wrong_consumer, 404, "unknown_message")
    assert (await client.delete(f"/channel/q/consumer/g/job/{job_id}")).json() == {
        "success": True, "deleted": 1, "jobId": job_id
    }  # fmt: skip
    response = await client.delete("/channel/q/consumer/g/dlq")
    assert response.status_code == 202
    assert (await wait_until_ended(client, response.json()))["changed"] == 2
    consumers = (await client.get("/dlq-status")).json()["consumers"]
    counts = {row["consumerId"]: row["deadCount"] for row in consumers if row["channelId"] == "q"}
    assert counts == {"g": 0, "other": 3}


async def test_an_error_group_is_resolved_in_one_queue_or_in_all(client: httpx.AsyncClient) -> None:
    for queue in ("q", "r"):
        await dead_letter_messages(client, 1, queue=queue, error="timeout after 5 ms")
    [group] = (await get(client, "/dlq/groups"))["groups"]
    path = f"/api/v1/dlq/error-groups/{group['errorGroup']}/resolve"

    in_one = await client.post(path, params={"queue": "r"})
    assert in_one.json() == {"success": True, "errorGroup": group["errorGroup"], "queues": ["r"]}
    assert (await client.post(path)).json()["queues"] == ["q", "r"]

    missing = await client.post(path, params={"queue": "none"})
    assert "/api/v1/dlq/groups" in assert_problem(missing, 404, "unknown_error_group")
    unknown = await client.post(path.replace(group["errorGroup"], "0" * 32))
    assert_problem(unknown, 404, "unknown_error_group")
    assert (await client.post("/api/v1/dlq/error-groups/nonsense/resolve")).status_code in (400, 422)


@asynccontextmanager
async def open_client(
    app: FastAPI, settings: Settings, host: str = "127.0.0.1"
) -> AsyncIterator[httpx.AsyncClient]:
    """A client at another address of an application with the same services and other settings."""
    guarded_app = create_app(settings)
    guarded_app.state.services = app.state.services
    transport = httpx.ASGITransport(guarded_app, raise_app_exceptions=False, client=(host, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http_client:
        yield http_client


DLQ_ROUTES = (
    ("GET", "/dlq-status"),
    ("GET", "/api/v1/dlq"),
    ("GET", "/api/v1/dlq/status"),
    ("GET", "/api/v1/dlq/groups"),
    ("POST", "/api/v1/dlq/error-groups/00000000-0000-0000-0000-000000000001/resolve"),
    ("GET", "/api/v1/dlq/letters/1"),
    ("DELETE", "/api/v1/dlq/letters/1"),
    ("POST", "/api/v1/dlq/letters/1/requeue"),
    ("POST", "/api/v1/dlq/requeue"),
    ("POST", "/api/v1/dlq/purge"),
    ("GET", "/api/v1/jobs"),
    ("GET", "/api/v1/jobs/00000000-0000-0000-0000-000000000000"),
    ("POST", "/api/v1/jobs/00000000-0000-0000-0000-000000000000/cancel"),
)
RESTRICTED_ROUTES = tuple(
    (method, path) for method, path in DLQ_ROUTES if method != "GET" or path == "/dlq-status"
)


async def test_openapi_describes_the_bodies(client: httpx.AsyncClient) -> None:
    openapi = (await client.get("/openapi.json")).json()
    body = openapi["paths"]["/api/v1/dlq/requeue"]["post"]["requestBody"]["content"]["application/json"]
    assert {"letterIds", "queue", "from", "dryRun", "ratePerSecond"} <= set(body["schema"]["properties"])
    assert json.dumps(body).count("$ref") == 0
