"""The routes that list queues, partitions, namespaces and tasks."""

from __future__ import annotations

import httpx
import pytest

from tests.integration.api.calls import ack, assert_problem, configure, get, pop, push


async def test_a_queue_is_described_with_options_totals_and_groups(client: httpx.AsyncClient) -> None:
    await configure(client, retryLimit=2)
    for name in ("a", "b", "c"):
        await push(client, 1, 2, partition=name)
    [message] = await pop(client, consumerGroup="g")
    await ack(client, message, "dlq")
    await pop(client, consumerGroup="g")
    body = await get(client, "/resources/queues/q", limit=2, offset=1)
    assert body["options"]["retryLimit"] == 2
    assert body["totals"] == {"total": 6, "pushed": 6, "pending": 4, "processing": 1, "deadLetter": 1}
    assert (body["depth"], body["running"], body["partitionCount"]) == (4, 1, 4)
    assert [p["name"] for p in body["partitions"]] == ["a", "b"]
    assert body["partitions"][0]["messages"]["total"] == 2
    [group] = body["consumerGroups"]
    assert (group["name"], group["totalLag"], group["activeLeases"], group["deadLetter"]) == ("g", 5, 1, 1)


async def test_partitions_are_paged_and_searched(client: httpx.AsyncClient) -> None:
    for queue in ("p", "q"):
        for name in ("left", "right"):
            await push(client, 1, queue=queue, partition=name)
    body = await get(client, "/resources/partitions", limit=3)
    assert [(p["queue"], p["name"]) for p in body["partitions"]] == [
        ("p", "left"),
        ("p", "right"),
        ("q", "left"),
    ]
    assert body["total"] == 4
    body = await get(client, "/resources/partitions", queue="q", search="RIGH")
    assert [(p["queue"], p["name"]) for p in body["partitions"]] == [("q", "right")]
    assert (await get(client, "/resources/partitions", queue="q", search="up"))["partitions"] == []
    assert_problem(await client.get("/api/v1/resources/partitions?queue=r"), 404, "unknown_queue")


async def test_namespaces_tasks_and_overview_have_totals(client: httpx.AsyncClient) -> None:
    for queue in ("jobs.mail", "jobs.print", "plain"):
        await push(client, 1, queue=queue)
    body = await get(client, "/resources/namespaces")
    assert [(n["namespace"], n["queues"], n["messages"]["pending"]) for n in body["namespaces"]] == [
        ("jobs", 2, 2)
    ]
    body = await get(client, "/resources/tasks")
    assert [t["task"] for t in body["tasks"]] == ["mail", "print"]
    body = await get(client, "/resources/overview")
    assert (body["queues"], body["partitions"], body["namespaces"], body["tasks"]) == (3, 3, 1, 2)
    assert body["messages"]["pending"] == 3
    assert (await get(client, "/resources/overview", namespace="jobs"))["queues"] == 2


@pytest.mark.parametrize(
    "path",
    [
        "/resources/queues?limit=0",
        "/resources/queues?limit=x",
        "/resources/queues?search=",
        "/resources/partitions?offset=-1",
        "/resources/partitions?queue=%00",
        "/resources/queues/%00",
    ],
)
async def test_invalid_parameters_get_422(client: httpx.AsyncClient, path: str) -> None:
    assert_problem(await client.get(f"/api/v1{path}"), 422, "invalid_request")
