"""The routes for status pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest
import pytest_asyncio

from penstock.clock import iso
from penstock.config import Settings
from penstock.durable.cluster_lock import ClusterLock
from penstock.durable.pool import Database
from penstock.durable.reconciliation import Reconciliation
from penstock.warehouse.schema_migrations import migrate
from tests.integration.api.calls import ack, assert_problem, get, pop, push


async def test_status_reports_current_totals(client: httpx.AsyncClient) -> None:
    await push(client, 1, 2, 3)
    [message] = await pop(client)
    body = await get(client, "/status")
    assert body["messages"] == {"total": 3, "pushed": 3, "pending": 2, "processing": 1, "deadLetter": 0}
    await ack(client, message, "dlq")
    body = await get(client, "/status/queues")
    assert body["queues"][0]["messages"] == {
        "total": 3,
        "pushed": 3,
        "pending": 2,
        "processing": 0,
        "deadLetter": 1,
    }
    assert (await get(client, "/status/queues", namespace="none"))["queues"] == []
    await push(client, 1, queue="ns.task")
    for label in ({"namespace": "ns"}, {"task": "task"}):
        assert [q["name"] for q in (await get(client, "/status/queues", **label))["queues"]] == ["ns.task"]
        assert (await get(client, "/status", **label))["queues"] == 1
    assert_problem(await client.get("/api/v1/status?task=%00"), 422, "invalid_request")


async def test_status_describes_a_queue_and_lists_its_messages(client: httpx.AsyncClient) -> None:
    await push(client, "a", "b", queue="ns.t")
    body = await get(client, "/status/queues/ns.t")
    assert (body["queue"]["name"], body["queue"]["task"], body["queue"]["config"]["retryLimit"]) == (
        "ns.t",
        "t",
        3,
    )
    assert body["totals"]["messages"]["pending"] == body["totals"]["pending"] == 2
    messages = (await get(client, "/status/queues/ns.t/messages", limit=1))["messages"]
    assert [m["data"] for m in messages] == ["b"]
    assert_problem(await client.get("/api/v1/status/queues/unknown"), 404, "unknown_queue")
    assert_problem(await client.get("/api/v1/status/queues/unknown/messages"), 404, "unknown_queue")


@pytest_asyncio.fixture
async def cluster_lock(database_url: str) -> AsyncIterator[ClusterLock]:
    """The lock, taken before the application starts, so that the application does no maintenance."""
    session = await ClusterLock.acquire(database_url)
    assert session is not None
    yield session
    await session.close()


async def test_status_reports_the_last_reconciliation(
    cluster_lock: ClusterLock, client: httpx.AsyncClient, database: Database
) -> None:
    await push(client, 1, 2)
    assert await get(client, "/status/reconciliation") == {"endedAt": None}
    await database.fetch("UPDATE tallies SET messages = 5 WHERE group_id = 0")
    assert [await Reconciliation(cluster_lock).run_step() for _ in range(2)] == [False, True]
    report = await get(client, "/status/reconciliation")
    assert (report["queues"], report["partitions"], report["drift"], report["orphans"]) == (1, 1, 3, 0)
    [finding] = report["findings"]
    assert finding == {"queue": "q", "what": "total pushed", "messages": -3, "corrected": True}
    assert (await get(client, "/status"))["messages"]["pushed"] == 2


async def test_stats_refresh_succeeds(client: httpx.AsyncClient) -> None:
    assert (await client.post("/api/v1/stats/refresh")).json()["success"] is True


@pytest.mark.parametrize(
    ("path", "points"),
    [
        ("/status/analytics", "dataPoints"),
        ("/analytics/queue-lag", "series"),
        ("/analytics/queue-ops", "series"),
    ],
)
async def test_a_queue_has_a_history(
    client: httpx.AsyncClient, settings: Settings, path: str, points: str
) -> None:
    await asyncio.to_thread(migrate, settings.clickhouse_url)
    await push(client, 1)
    end = datetime.now(UTC).replace(second=0, microsecond=0)
    window = {"from": (end - timedelta(hours=1)).isoformat(), "to": end.isoformat()}
    body = await get(client, path, queue="q", interval="minute", **window)
    assert len(body[points]) == 60
    assert (body["interval"], body["timeRange"]["to"]) == ("1m", iso(end))
    assert len((await get(client, path, queue="q"))[points]) > 0
    assert_problem(await client.get(f"/api/v1{path}?queue=unknown"), 404, "unknown_queue")
    assert_problem(await client.get(f"/api/v1{path}?queue=q&interval=week"), 422, "invalid_request")
    assert points in await get(client, path)


async def test_openapi_describes_every_public_route(client: httpx.AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    assert {
        f"/api/v1{path}"
        for path in (
            "/configure",
            "/resources/queues",
            "/resources/queues/{queue}",
            "/resources/namespaces",
            "/resources/tasks",
            "/resources/overview",
            "/resources/partitions",
            "/dlq",
            "/messages",
            "/messages/{partition_id}/{transaction_id}",
            "/messages/{partition_id}/{transaction_id}/retry",
            "/messages/{partition_id}/{transaction_id}/dlq",
            "/traces",
            "/traces/names",
            "/traces/by-name/{name}",
            "/traces/{partition_id}/{transaction_id}",
            "/consumer-groups",
            "/consumer-groups/lagging",
            "/consumer-groups/{group}",
            "/consumer-groups/{group}/queues/{queue}",
            "/consumer-groups/{group}/subscription",
            "/consumer-groups/{group}/queues/{queue}/seek",
            "/consumer-groups/{group}/queues/{queue}/partitions/{partition}/seek",
            "/status",
            "/status/queues",
            "/status/queues/{queue}",
            "/status/queues/{queue}/messages",
            "/status/analytics",
            "/stats/refresh",
            "/analytics/queue-lag",
            "/analytics/queue-ops",
            "/analytics/worker-metrics",
            "/analytics/system-metrics",
        )
    } <= set(paths)
