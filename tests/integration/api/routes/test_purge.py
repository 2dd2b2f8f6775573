"""The routes that purge durable queues and run queues."""

from __future__ import annotations

from uuid import uuid4

import httpx
import pytest
from fastapi import FastAPI

from tests.emitted_counts import sum_emitted_counts
from tests.integration.api import shared_app
from tests.integration.api.calls import ack, app_services, assert_problem, get, pop, pop_payloads, push
from tests.waiting import wait_until_async

app = shared_app.app


async def purge(client: httpx.AsyncClient, path: str) -> dict[str, object]:
    response = await client.post(f"/api/v1/{path}/purge")
    assert response.status_code == 200, response.text
    result: dict[str, object] = response.json()
    return result


async def wait_for_expired(app: FastAPI, queue: str, messages: int) -> None:
    """Wait until the metric events of a queue count this many expired messages."""

    async def has_counted() -> bool:
        return (await sum_emitted_counts(app_services(app).redis, queue))["expired"] == messages

    await wait_until_async(has_counted, 20, f"{messages} messages of {queue} are counted as expired")


async def test_purging_a_durable_queue_drops_its_messages_for_every_group(
    client: httpx.AsyncClient, app: FastAPI
) -> None:
    queue = uuid4().hex
    for partition in ("a", "b"):
        await push(client, *range(5), queue=queue, partition=partition)
    leased = await pop(client, queue, consumerGroup="slow", subscriptionMode="all", partitions=1)
    while await pop(client, queue, consumerGroup="fast", subscriptionMode="all", autoAck="true", batch=100):
        pass
    assert len(leased) == 1
    await push(client, "last", queue=queue, partition="a")
    dropped = await purge(client, f"resources/queues/{queue}")
    assert dropped == {"queue": queue, "purged": 11, "consumerGroups": {"fast": 1, "slow": 11}}
    description = await get(client, f"/resources/queues/{queue}")
    assert (description["depth"], description["running"]) == (0, 0)
    assert await pop_payloads(client, queue, consumerGroup="slow", batch=100) == []
    lost = await client.post(
        "/api/v1/ack",
        json={
            **{key: leased[0][key] for key in ("transactionId", "partitionId", "leaseId")},
            "status": "completed",
        },
    )
    assert_problem(lost, 409, "lease_lost")
    await push(client, "new", queue=queue, partition="a")
    assert await pop_payloads(client, queue, consumerGroup="slow", batch=100) == ["new"]
    assert await pop_payloads(client, queue, consumerGroup="later", subscriptionMode="all") == ["new"]
    assert await purge(client, f"resources/queues/{queue}") == {
        "queue": queue,
        "purged": 1,
        "consumerGroups": {"fast": 1, "later": 1, "slow": 1},
    }
    await wait_for_expired(app, queue, 12 + 3)


async def test_purging_counts_messages_that_were_finished_out_of_order_once(
    client: httpx.AsyncClient,
) -> None:
    queue = uuid4().hex
    await push(client, *range(4), queue=queue)
    messages = await pop(client, queue, batch=3)
    await ack(client, messages[1])
    assert await purge(client, f"resources/queues/{queue}") == {
        "queue": queue,
        "purged": 3,
        "consumerGroups": {"__QUEUE_MODE__": 3},
    }


async def test_purging_a_queue_without_groups_drops_its_messages(client: httpx.AsyncClient) -> None:
    queue = uuid4().hex
    await push(client, *range(3), queue=queue)
    assert await purge(client, f"resources/queues/{queue}") == {
        "queue": queue,
        "purged": 3,
        "consumerGroups": {},
    }
    assert (await get(client, f"/resources/queues/{queue}"))["totals"]["total"] == 0
    assert await pop_payloads(client, queue) == []


async def test_purging_a_run_queue_drops_waiting_and_delayed_tasks(
    client: httpx.AsyncClient, app: FastAPI
) -> None:
    queue = uuid4().hex
    tasks = [{"payload": n} for n in range(1_200)]
    path = f"/api/v1/run-queues/{queue}"
    for start in range(0, 1_200, 400):
        await client.post(f"{path}/tasks", json={"tasks": tasks[start : start + 400]})
    await client.post(f"{path}/tasks", json={"payload": "later", "delayMs": 60_000})
    assert len((await client.post(f"{path}/dequeue", json={"limit": 2})).json()["tasks"]) == 2
    assert await purge(client, f"run-queues/{queue}") == {"queue": queue, "purged": 1_199}
    state = await get(client, f"/run-queues/{queue}")
    assert (state["depth"], state["delayed"], state["running"], state["oldestAgeMs"]) == (0, 0, 2, 0)
    assert await purge(client, f"run-queues/{queue}") == {"queue": queue, "purged": 0}
    await wait_for_expired(app, queue, 1_199)


@pytest.mark.parametrize("kind", ["resources/queues", "run-queues"])
async def test_purging_an_unknown_queue_is_refused(client: httpx.AsyncClient, kind: str) -> None:
    assert_problem(await client.post(f"/api/v1/{kind}/{uuid4().hex}/purge"), 404, "unknown_queue")


async def test_a_queue_is_purged_by_the_route_of_its_kind_alone(client: httpx.AsyncClient) -> None:
    durable, run_queue = uuid4().hex, uuid4().hex
    await push(client, 1, queue=durable)
    await client.post(f"/api/v1/run-queues/{run_queue}/tasks", json={"payload": 1})
    assert_problem(await client.post(f"/api/v1/run-queues/{durable}/purge"), 409, "wrong_state")
    assert_problem(await client.post(f"/api/v1/resources/queues/{run_queue}/purge"), 404, "unknown_queue")
    assert (await get(client, f"/run-queues/{run_queue}"))["depth"] == 1
