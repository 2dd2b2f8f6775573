"""The diagnostic routes: batching of a process, and sessions that hold back vacuum."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest_asyncio

from penstock.config import Settings
from penstock.durable.pool import Database
from penstock.durable.storage import vacuum
from tests.waiting import wait_until_async

HORIZON = "/api/v1/status/horizon"


@pytest_asyncio.fixture
async def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"horizon_s": 1})


async def test_batching_counts_requests_items_and_batches(client: httpx.AsyncClient) -> None:
    body = {"items": [{"queue": "q", "payload": n} for n in range(3)]}
    await asyncio.gather(*(client.post("/api/v1/push", json=body) for _ in range(10)))
    response = (await client.get("/api/v1/analytics/batching")).json()
    push = response["operations"]["push"]
    assert (push["requests"], push["items"]) == (10, 30)
    assert 1 <= push["batches"] <= 10
    assert push["averageBatchItems"] == round(30 / push["batches"], 2)
    assert push["averageMs"] > 0
    assert response["connections"]["open"] >= 1
    assert response["operations"]["pop"]["requests"] == 0


async def test_a_worker_reports_its_load_batches_memory_and_last_seconds(client: httpx.AsyncClient) -> None:
    body = {"items": [{"queue": "q", "payload": 1}]}
    await asyncio.gather(*(client.post("/api/v1/push", json=body) for _ in range(10)))

    async def read_worker() -> dict[str, Any] | None:
        status = (await client.get("/api/v1/status/workers")).json()
        assert status["journal"]["records"] == 0
        [worker] = status["workers"]
        return worker if sum(worker["recent"]["batchRequests"]) >= 10 else None

    worker = await wait_until_async(read_worker, 10, "the second of the pushes is over")
    assert worker is not None
    assert (worker["worker"], worker["pid"]) == (0, os.getpid())
    assert worker["load"]["operations"]["push"]["reason"] == "switched_off"
    assert worker["load"]["connections"]["limit"] >= 1
    assert worker["batching"]["push"]["requests"] == 10
    assert worker["residentBytes"] > 10 << 20
    recent = worker["recent"]
    assert len({len(values) for values in recent.values()}) == 1, "one value per second of each"
    assert sum(recent["batches"]) <= sum(recent["batchRequests"])
    assert recent["residentBytes"][-1] > 10 << 20
    assert max(recent["cpuPercent"]) > 0


async def test_batching_counts_the_calls_of_run_queues(client: httpx.AsyncClient) -> None:
    path = "/api/v1/run-queues/batched"
    body = {"tasks": [{"payload": n} for n in range(3)]}
    await asyncio.gather(*(client.post(f"{path}/tasks", json=body) for _ in range(10)))
    dequeued = await client.post(f"{path}/dequeue", json={"limit": 5})
    for task in dequeued.json()["tasks"]:
        await client.post(f"/api/v1/tasks/{task['id']}/ack", json={"token": task["token"]})
    operations = (await client.get("/api/v1/analytics/batching")).json()["operations"]
    enqueue, dequeue, ack = (operations[f"task {name}"] for name in ("enqueue", "dequeue", "ack"))
    assert (enqueue["requests"], enqueue["items"]) == (10, 30)
    assert 1 <= enqueue["batches"] <= 10
    assert enqueue["averageMs"] > 0
    assert (dequeue["requests"], dequeue["items"]) == (1, 5)
    assert (ack["requests"], ack["items"]) == (5, 5)
    assert operations["task nack"]["requests"] == operations["task heartbeat"]["requests"] == 0


@pytest_asyncio.fixture
async def idle_session(settings: Settings) -> AsyncIterator[int]:
    """The process id of a session that leaves a transaction open."""
    connection = await asyncpg.connect(settings.postgres_url, server_settings={"application_name": "report"})
    async with connection.transaction():
        await connection.execute("SELECT pg_current_xact_id()")
        database = Database(settings.postgres_url, 1)
        await vacuum.record_xid_clock(database)
        await database.close()
        yield connection.get_server_pid()
    await connection.close()


async def test_a_session_that_holds_back_vacuum_is_listed_with_advice(
    client: httpx.AsyncClient, idle_session: int
) -> None:
    async def list_holders() -> list[dict[str, Any]]:
        response = (await client.get(HORIZON)).json()
        assert response["longerThan"] == 1
        return [holder for holder in response["holders"] if holder["pid"] == idle_session]

    [holder] = await wait_until_async(list_holders, 10, "the session is listed")
    assert (holder["kind"], holder["name"]) == ("idle in transaction", str(idle_session))
    assert (holder["application"], holder["user"]) == ("report", "penstock")
    assert holder["ageSeconds"] >= 1
    assert f"pg_terminate_backend({idle_session})" in holder["advice"]
    response = await client.get(HORIZON, params={"longerThan": 3600})
    assert response.json() == {"longerThan": 3600, "holders": []}


async def test_a_held_vacuum_horizon_is_a_warning_and_not_an_outage(
    client: httpx.AsyncClient, idle_session: int
) -> None:
    async def read_warnings() -> list[str]:
        health = (await client.get("/health")).json()
        assert health["parts"]["postgres"]["status"] == "up"
        warnings: list[str] = health["warnings"]
        return warnings

    [warning] = await wait_until_async(read_warnings, 10, "/health has a warning")
    assert warning.startswith(
        f"session {idle_session} of penstock (report) has kept dead rows from being removed"
    )


async def test_an_age_that_is_not_a_number_is_rejected(client: httpx.AsyncClient) -> None:
    response = await client.get(HORIZON, params={"longerThan": "soon"})
    assert response.status_code == 422
    assert response.json()["field"] == "longerThan"
