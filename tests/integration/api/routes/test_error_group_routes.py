"""The routes that change error groups, and jobs that requeue a sample first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.integration.api import shared_app
from tests.integration.api.calls import ack, assert_problem, get, pop
from tests.integration.api.routes.test_dead_letter_routes import (
    create_job,
    dead_letter_messages,
    dead_letter_waiting,
    wait_until_ended,
)
from tests.integration.api.routes.test_dead_task_routes import create_dead_tasks
from tests.waiting import wait_until_async

app = shared_app.app


@pytest.fixture
def queue() -> str:
    return f"queue-{uuid4()}"


async def get_group(client: httpx.AsyncClient, queue: str, **params: Any) -> dict[str, Any]:
    [group] = (await get(client, "/dlq/groups", queue=queue, **params))["groups"]
    return dict(group)


async def change_group(
    client: httpx.AsyncClient, queue: str, group: dict[str, Any], **body: Any
) -> httpx.Response:
    path = f"/api/v1/dlq/error-groups/{group['errorGroup']}"
    return await client.patch(path, params={"queue": queue}, json=body)


async def test_an_operator_ignores_assigns_and_resolves_a_group(
    client: httpx.AsyncClient, queue: str
) -> None:
    await dead_letter_messages(client, 1, queue=queue, error="declined")
    group = await get_group(client, queue)
    assert (group["state"], group["owner"], group["changedAt"]) == ("new", None, None)

    ignored = (await change_group(client, queue, group, state="ignored", ignoredUntil={"count": 2})).json()
    assert (ignored["state"], ignored["changedBy"]) == ("ignored", "local")
    assert ignored["ignoredUntil"] == {"time": None, "count": 2, "ratePerHour": None}
    assert (await get(client, "/dlq/groups", queue=queue, state="new"))["groups"] == []
    await change_group(client, queue, group, owner="ada", note="waits for the provider")
    await dead_letter_messages(client, 2, queue=queue, error="declined")
    current = await get_group(client, queue, state=["ignored", "resolved"])
    assert (current["state"], current["owner"]) == ("ignored", "ada"), "one of two more dead letters"
    await dead_letter_messages(client, 3, queue=queue, error="declined")
    current = await get_group(client, queue)
    assert (current["state"], current["returnedFrom"]) == ("back_again", "ignored")

    await change_group(client, queue, group, state="resolved", owner=None)
    await wait_until_ended(client, await create_job(client, "purge", queue=queue))
    path = f"/dlq/error-groups/{group['errorGroup']}"
    without_letters = await get(client, path, queue=queue)
    assert (without_letters["state"], without_letters["deadLetters"]) == ("resolved", 0)
    assert (without_letters["owner"], without_letters["note"]) == (None, "waits for the provider")
    await dead_letter_messages(client, 4, queue=queue, error="declined")
    assert (await get(client, path, queue=queue))["returnedFrom"] == "resolved"


async def test_bad_changes_are_refused_and_change_nothing(client: httpx.AsyncClient, queue: str) -> None:
    await dead_letter_messages(client, 1, queue=queue)
    group = await get_group(client, queue)
    past = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    for body in (
        {},
        {"state": "back_again"},
        {"state": "new"},
        {"state": "ignored", "ignoredUntil": {}},
        {"state": "ignored", "ignoredUntil": {"time": past}},
        {"state": "ignored", "ignoredUntil": {"time": "tomorrow"}},
        {"state": "ignored", "ignoredUntil": {"count": 0}},
        {"state": "resolved", "ignoredUntil": {"count": 1}},
        {"owner": ""},
        {"note": "x" * 2001},
        {"owners": "ada"},
    ):
        refused = await change_group(client, queue, group, **body)
        assert refused.status_code in (400, 422), body
    assert await get_group(client, queue) == group
    unknown = {"errorGroup": str(uuid4())}
    assert_problem(await change_group(client, queue, unknown, state="open"), 404, "unknown_error_group")
    assert_problem(await client.get(f"/api/v1/dlq/error-groups/{uuid4()}"), 404, "unknown_error_group")
    assert (await client.get("/api/v1/dlq/groups", params={"state": "odd"})).status_code in (400, 422)


async def test_groups_of_a_run_queue_have_states(client: httpx.AsyncClient, queue: str) -> None:
    await create_dead_tasks(client, queue, 1, error="declined")
    await create_dead_tasks(client, queue, 2, 3, error="timeout")
    timeout, declined = (await get(client, "/dlq/groups", queue=queue))["groups"]
    assert (await change_group(client, queue, declined, state="resolved")).json()["queues"] == [queue]
    until = {"ratePerHour": 1}
    assert (await change_group(client, queue, timeout, state="ignored", ignoredUntil=until)).is_success
    assert (await get_group(client, queue, state="ignored"))["errorGroup"] == timeout["errorGroup"]
    assert (await get_group(client, queue, state="resolved"))["errorGroup"] == declined["errorGroup"]

    await create_dead_tasks(client, queue, 4, error="declined")
    assert (await get_group(client, queue, state="back_again"))["returnedFrom"] == "resolved"
    path = f"/dlq/error-groups/{timeout['errorGroup']}"
    assert (await get(client, path, queue=queue))["state"] == "ignored"


async def wait_for_sample(client: httpx.AsyncClient, job: dict[str, Any], requeued: int) -> dict[str, Any]:
    async def has_sample() -> dict[str, Any] | None:
        current: dict[str, Any] = await get(client, f"/jobs/{job['id']}")
        is_waiting = current["sample"]["endsAt"] is not None and current["changed"] == requeued
        return current if is_waiting else None

    waiting = await wait_until_async(has_sample, 20, "the sample is requeued")
    assert waiting is not None
    return waiting


async def test_the_rest_follows_when_the_sample_is_acked(client: httpx.AsyncClient, queue: str) -> None:
    await dead_letter_messages(client, *range(8), queue=queue)
    job = await create_job(client, "requeue", queue=queue, sample=3)
    waiting = await wait_for_sample(client, job, 3)
    assert waiting["state"] == "running"
    assert waiting["sample"]["passed"] is None
    messages = await pop(client, queue, consumerGroup="g", batch=100)
    assert [message["data"] for message in messages] == [0, 1, 2], "the rest waits for the sample"
    for message in messages:
        await ack(client, message, consumerGroup="g")
    done = await wait_until_ended(client, job)
    assert (done["state"], done["changed"], done["note"]) == ("done", 8, None)
    assert (done["sample"]["acked"], done["sample"]["dead"], done["sample"]["passed"]) == (3, 0, True)
    rest = await pop(client, queue, consumerGroup="g", batch=100)
    assert [message["data"] for message in rest] == [3, 4, 5, 6, 7]


async def test_a_failed_sample_stops_the_job_with_the_reasons(client: httpx.AsyncClient, queue: str) -> None:
    await dead_letter_messages(client, *range(8), queue=queue)
    job = await create_job(client, "requeue", queue=queue, sample=4, sampleShare=0.75)
    await wait_for_sample(client, job, 4)
    first, *others = await pop(client, queue, consumerGroup="g", batch=100)
    for message in others[:2]:
        await ack(client, message, "dlq", consumerGroup="g", error="still 5 ms too slow")
    failed = await wait_until_ended(client, job)
    assert (failed["state"], failed["changed"]) == ("failed", 4)
    assert "2 died again: still <n> ms too slow (2)" in failed["note"]
    assert failed["sample"]["passed"] is False
    await ack(client, first, consumerGroup="g")
    assert (await get(client, "/dlq", queue=queue))["total"] == 6


async def test_a_sample_that_is_not_consumed_fails_at_its_timeout(
    client: httpx.AsyncClient, queue: str
) -> None:
    await dead_letter_messages(client, 1, 2, queue=queue)
    job = await create_job(client, "requeue", queue=queue, sample=1, sampleTimeoutSeconds=1)
    failed = await wait_until_ended(client, job)
    assert (failed["state"], failed["changed"]) == ("failed", 1)
    assert "1 were not finished within 1 s" in failed["note"]


@pytest.mark.parametrize("outcome", ["acked", "dead"])
async def test_a_sample_of_dead_tasks(client: httpx.AsyncClient, queue: str, outcome: str) -> None:
    await create_dead_tasks(client, queue, *range(5))
    job = await create_job(client, "requeue", queue=queue, sample=2)
    await wait_for_sample(client, job, 2)
    dequeued = await client.post(f"/api/v1/run-queues/{queue}/dequeue", json={"limit": 10})
    tasks = dequeued.json()["tasks"]
    assert [task["payload"] for task in tasks] == [0, 1]
    for task in tasks:
        action = {"acked": "ack", "dead": "nack"}[outcome]
        body = {"token": task["token"]} | ({"retry": False, "error": "bad"} if outcome == "dead" else {})
        assert (await client.post(f"/api/v1/tasks/{task['id']}/{action}", json=body)).is_success
    ended = await wait_until_ended(client, job)
    expected = {"acked": ("done", 5), "dead": ("failed", 2)}[outcome]
    assert (ended["state"], ended["changed"]) == expected, ended["note"]
    assert (await get(client, "/dlq", queue=queue))["messages"] == [] or outcome == "dead"


async def test_bad_samples_are_refused(client: httpx.AsyncClient, queue: str) -> None:
    for kind, body in (
        ("requeue", {"sample": 0}),
        ("requeue", {"sample": 1001}),
        ("requeue", {"sampleShare": 0.5}),
        ("requeue", {"sample": 1, "sampleShare": 0}),
        ("requeue", {"sample": 1, "sampleShare": 1.5}),
        ("requeue", {"sample": 1, "sampleTimeoutSeconds": 0}),
        ("purge", {"sample": 1}),
    ):
        response = await client.post(f"/api/v1/dlq/{kind}", json={"queue": queue, **body})
        assert_problem(response, 422, "invalid_request")


async def test_a_cancelled_job_does_not_wait_for_its_sample(client: httpx.AsyncClient, queue: str) -> None:
    await dead_letter_messages(client, *range(3), queue=queue)
    job = await create_job(client, "requeue", queue=queue, sample=1)
    await wait_for_sample(client, job, 1)
    assert (await client.post(f"/api/v1/jobs/{job['id']}/cancel")).json()["state"] == "cancelled"
    await dead_letter_waiting(client, queue, "boom", "g")
    ended = await wait_until_ended(client, job)
    assert (ended["state"], ended["changed"]) == ("cancelled", 1)
