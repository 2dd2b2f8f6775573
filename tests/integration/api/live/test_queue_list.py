"""The list of queues of the console, on real servers."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from penstock.warehouse.clickhouse_client import Warehouse
from tests.integration.api import shared_app
from tests.integration.api.calls import ack, app_services, assert_problem, get, pop, push
from tests.integration.warehouse.landing_rows import insert_rows, landing_row
from tests.waiting import wait_until_async

app = shared_app.app
database = shared_app.database


async def list_queues(client: httpx.AsyncClient, **params: Any) -> dict[str, Any]:
    page: dict[str, Any] = await get(client, "/console/queues", **params)
    return page


async def wait_for_queue(client: httpx.AsyncClient, name: str, **fields: Any) -> dict[str, Any]:
    """Return the entry of a queue once it has these fields: the list may be two seconds old."""
    entry: dict[str, Any] = {}

    async def has_fields() -> bool:
        nonlocal entry
        entries = (await list_queues(client, search=name))["queues"]
        entry = entries[0] if entries else {}
        return bool(entry) and all(entry[field] == value for field, value in fields.items())

    await wait_until_async(has_fields, 15, f"{name} has {fields}")
    return entry


async def test_an_entry_has_the_figures_of_all_servers(
    client: httpx.AsyncClient, warehouse: Warehouse
) -> None:
    now = time.time()
    insert_rows(
        warehouse,
        *(landing_row(now - 60 * age, queue="figures", depth=10 + age) for age in (20, 5)),
        landing_row(now - 30, queue="figures", enqueued=120, depth=7),
        landing_row(now - 30, queue="figures", group="g", dequeued=60, acked=60, wait_ms=(100,) * 60),
        landing_row(now - 30, queue="figures", group="g", dead=3),
    )
    await push(client, 1, 2, queue="figures")
    entry = await wait_for_queue(client, "figures", depth=2, rateIn=2.0)
    assert entry["kind"] == "durable"
    assert (entry["rateOut"], entry["waitP95Ms"], entry["deadLastHour"]) == (1.0, 100.0, 3)
    history = entry["depthHistory"]
    assert len(history) == 30
    assert (history[0], history[-1]) == (None, 2), "the last point is the depth of now"
    assert {30, 15} <= set(history), history
    assert abs(now - _seconds(entry["oldestAt"])) < 60


async def test_a_paused_queue_and_one_at_its_limit_say_so(client: httpx.AsyncClient) -> None:
    await push(client, 1, queue="capped-paused")
    await client.post("/api/v1/resources/queues/capped-paused/pause")
    await client.put("/api/v1/run-queues/capped-run/limits", json={"concurrency": 1})
    tasks = {"tasks": [{"payload": 1}, {"payload": 2}]}
    assert (await client.post("/api/v1/run-queues/capped-run/tasks", json=tasks)).status_code == 201
    await client.post("/api/v1/run-queues/capped-run/dequeue", json={})

    await wait_for_queue(client, "capped-paused", cappedBy="paused", paused=True)
    entry = await wait_for_queue(client, "capped-run", cappedBy="own_limit")
    assert (entry["kind"], entry["depth"], entry["running"], entry["limit"]) == ("run", 1, 1, 1)
    assert entry["capDetail"] == "It runs 1 of 1 tasks."
    only_paused = await list_queues(client, search="capped", problem="paused")
    assert [queue["name"] for queue in only_paused["queues"]] == ["capped-paused"]
    assert only_paused["counts"]["own_limit"] == 1


async def test_a_queue_without_consumers_and_a_blocked_partition_say_so(client: httpx.AsyncClient) -> None:
    await push(client, 1, queue="no-consumers")
    await client.post("/api/v1/configure", json={"queue": "blocked", "options": {"retryLimit": 9}})
    await push(client, "bad", queue="blocked", partition="p7")
    for _ in range(2):
        [message] = await pop(client, "blocked", consumerGroup="billing")
        await ack(client, message, "failed", consumerGroup="billing")

    await wait_for_queue(client, "no-consumers", cappedBy="no_consumers")
    entry = await wait_for_queue(client, "blocked", cappedBy="blocked_partition")
    assert entry["capDetail"] == "The next message of partition p7 failed 2 times in group billing."


async def test_bad_parameters_are_refused(client: httpx.AsyncClient) -> None:
    for params in (
        {"sort": "size"},
        {"page": 0},
        {"pageSize": 501},
        {"kind": "x"},
        {"problem": "x"},
        {"q": 1},
    ):
        response = await client.get("/api/v1/console/queues", params=params)
        assert_problem(response, 422, "invalid_request")


async def test_ten_thousand_queues_are_sorted_and_paged_with_a_constant_number_of_queries(
    client: httpx.AsyncClient, app: FastAPI, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await database.fetch(
        "INSERT INTO queues (environment_id, name) "
        "SELECT require_environment_v1($1, $2, $3), 'many-' || to_char(n, 'FM00000') "
        "FROM generate_series(1, 10000) n",
        *DEFAULT_SCOPE,
    )
    await database.fetch(
        "INSERT INTO tallies (queue_id, group_id, slot, messages) "
        "SELECT id, 0, 0, substr(name, 6)::int FROM queues WHERE name LIKE 'many-%'"
    )
    await database.fetch(
        "INSERT INTO partitions (queue_id, name, next_offset) "
        "SELECT id, 'Default', substr(name, 6)::int FROM queues WHERE name LIKE 'many-%'"
    )
    await wait_for_queue(client, "many-10000", depth=10_000)
    statements: list[str] = []
    pool = app_services(app).broker.store.gauges._session
    fetch = pool.fetch

    async def recorded(query: str, *args: object) -> Any:
        statements.append(query)
        return await fetch(query, *args)

    monkeypatch.setattr(pool, "fetch", recorded)
    names: list[str] = []
    for page in range(1, 21):
        queues = await list_queues(client, search="many-", sort="depth", page=page, pageSize=500)
        assert (queues["total"], queues["pages"]) == (10_000, 20)
        names += [queue["name"] for queue in queues["queues"]]
    assert names == [f"many-{number:05}" for number in range(10_000, 0, -1)]
    by_name = await list_queues(client, search="many-", sort="name", order="desc", pageSize=1, page=2)
    assert [queue["name"] for queue in by_name["queues"]] == ["many-09999"]
    listing = [query for query in statements if "queue_list" in query]
    background = [query for query in statements if "lease_job_v1" in query]
    assert len(statements) == len(listing) + len(background), "no other query"
    assert len(listing) <= 10, "snapshots are shared by the 21 requests"


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


async def test_the_kind_of_a_name_says_which_route_describes_the_queue(client: httpx.AsyncClient) -> None:
    await push(client, 1, queue="kind-durable")
    (await client.post("/api/v1/run-queues/kind-run/tasks", json={"payload": 1})).raise_for_status()
    kinds = {"kind-durable": "durable", "kind-run": "run", "kind-unknown": "durable"}
    for queue, kind in kinds.items():
        assert await get(client, f"/console/queues/{queue}/kind") == {"queue": queue, "kind": kind}
