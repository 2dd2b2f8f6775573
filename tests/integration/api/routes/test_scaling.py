"""The route that says how many workers a queue needs, on real servers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from penstock.api.app import create_app
from penstock.config import Settings
from penstock.embedded.servers.ports import any_free_port
from penstock.model import QUEUE_MODE
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.schema_migrations import migrate
from tests.integration.api import shared_app
from tests.integration.api.calls import assert_problem, get, pop, push
from tests.integration.warehouse.landing_rows import insert_rows, landing_row

app = shared_app.app


@pytest.fixture(scope="module")
def warehouse(clickhouse_url: str) -> Warehouse:
    url = urlunsplit(urlsplit(clickhouse_url)._replace(path=f"/test_{uuid4().hex[:12]}"))
    migrate(url)
    return connect(url)


@pytest.fixture(scope="module")
def shared_settings(shared_settings: Settings, warehouse: Warehouse, clickhouse_url: str) -> Settings:
    database = warehouse.query("SELECT currentDatabase() AS name")[0]["name"]
    url = urlunsplit(urlsplit(clickhouse_url)._replace(path=f"/{database}"))
    return shared_settings.model_copy(update={"clickhouse_url": url, "metrics_enabled": False})


@pytest.fixture
def queue() -> str:
    return f"orders-{uuid4().hex[:8]}"


async def enqueue(client: httpx.AsyncClient, queue: str, count: int) -> None:
    tasks = [{"payload": number} for number in range(count)]
    response = await client.post(f"/api/v1/run-queues/{queue}/tasks", json={"tasks": tasks})
    assert response.is_success, response.text


async def scaling(client: httpx.AsyncClient, queue: str, **params: Any) -> dict[str, Any]:
    document: dict[str, Any] = await get(client, f"/queues/{queue}/scaling", **params)
    return document


async def test_a_run_queue_wants_workers_for_its_waiting_and_running_tasks(
    client: httpx.AsyncClient, warehouse: Warehouse, queue: str
) -> None:
    await enqueue(client, queue, 40)
    insert_rows(warehouse, landing_row(time.time() - 60, queue=queue, acked=20, run_ms=(2_000,) * 20))
    first = await scaling(client, queue, waitTarget=10)
    assert (first["kind"], first["group"], first["wantedWorkers"], first["basis"]) == ("run", None, 8, "rate")
    assert first["rate"]["perWorker"] == 0.5
    assert (first["rate"]["source"], first["rate"]["finished"], first["rate"]["windowSeconds"]) == (
        *("measured", 20),
        600,
    )
    taken = await client.post(f"/api/v1/run-queues/{queue}/dequeue", json={"limit": 10})
    assert taken.is_success, taken.text
    busy = await scaling(client, queue, waitTarget=10)
    assert (busy["backlog"], busy["running"], busy["wantedWorkers"]) == (30, 10, 8)
    assert busy["expectedWaitSeconds"] == 6.0
    assert (await client.put(f"/api/v1/run-queues/{queue}/limits", json={"concurrency": 5})).is_success
    limited = await scaling(client, queue, waitTarget=1, maxWorkers=50)
    assert (limited["wantedWorkers"], limited["limitedBy"]) == (5, "concurrency")


async def test_a_durable_queue_is_scaled_by_group_up_to_its_partitions(
    client: httpx.AsyncClient, warehouse: Warehouse, queue: str
) -> None:
    for partition in range(4):
        await push(client, *range(25), queue=queue, partition=f"p{partition}")
    unread = await scaling(client, queue, group="billing")
    assert (unread["groupExists"], unread["backlog"], unread["wantedWorkers"]) == (False, 100, 1)
    await pop(client, queue, batch=5, consumerGroup="billing", subscriptionMode="all")
    unmeasured = await scaling(client, queue, group="billing", waitTarget=20)
    assert (unmeasured["basis"], unmeasured["rate"]["source"]) == ("busy_workers", "none")
    assert (unmeasured["busyWorkers"], unmeasured["wantedWorkers"]) == (1, 2)
    answer = await scaling(client, queue, group="billing", waitTarget=20, workerRate=2)
    assert (answer["running"], answer["backlog"], answer["wantedWorkers"]) == (5, 95, 3)
    assert answer["rate"]["source"] == "parameter"
    hurried = await scaling(client, queue, group="billing", waitTarget=1, workerRate=1)
    assert (hurried["wantedWorkers"], hurried["limitedBy"]) == (4, "partitions")
    assert (await scaling(client, queue))["group"] == QUEUE_MODE


async def test_a_batch_of_a_consumer_counts_as_one_worker(
    client: httpx.AsyncClient, warehouse: Warehouse, queue: str
) -> None:
    for partition in range(8):
        await push(client, *range(20), queue=queue, partition=f"p{partition}")
    await pop(client, queue, batch=10)
    row = landing_row(time.time() - 60, queue=queue, group=QUEUE_MODE, acked=50, run_ms=(1_000,) * 50)
    insert_rows(warehouse, row)
    document = await scaling(client, queue, waitTarget=4)
    assert document["rate"]["perWorker"] == 10.0
    assert document["wantedWorkers"] == 4


async def test_bad_parameters_are_refused(client: httpx.AsyncClient, queue: str) -> None:
    path = f"/api/v1/queues/{queue}/scaling"
    detail = assert_problem(await client.get(path), 404, "unknown_queue")
    assert "The first push or task" in detail
    await enqueue(client, queue, 1)
    for parameters in ({"waitTarget": 0}, {"minWorkers": 3, "maxWorkers": 2}, {"maxWorkers": 0}, {"wait": 1}):
        assert_problem(await client.get(path, params=parameters), 422, "invalid_request")
    assert_problem(await client.get(path, params={"group": "billing"}), 422, "invalid_request")


@pytest_asyncio.fixture
async def client_without_clickhouse(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    unreachable = settings.model_copy(
        update={"clickhouse_url": f"http://127.0.0.1:{any_free_port()}/default"}
    )
    app = create_app(unreachable)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http_client:
            yield http_client


async def test_without_clickhouse_no_number_of_workers_is_invented(
    client_without_clickhouse: httpx.AsyncClient, queue: str
) -> None:
    client = client_without_clickhouse
    await enqueue(client, queue, 3)
    unknown = await scaling(client, queue)
    assert (unknown["wantedWorkers"], unknown["basis"]) == (None, "unknown")
    assert unknown["rate"]["source"] == "unknown"
    assert "ClickHouse" in unknown["rate"]["problem"]
    assert (await scaling(client, queue, workerRate=1))["wantedWorkers"] == 1
    taken = await client.post(f"/api/v1/run-queues/{queue}/dequeue", json={"limit": 3})
    assert taken.is_success, taken.text
    assert (await scaling(client, queue))["wantedWorkers"] == 3
