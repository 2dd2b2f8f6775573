"""Routes of Queen 0.15 whose parts Penstock has in another form, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from penstock.broker.overload.deferred import SYSTEM_BUSY
from penstock.durable.deferred_operations import DeferredOperations, LanePush
from penstock.durable.log import Segment
from penstock.durable.pool import Database
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE
from tests.integration.api.calls import app_services, assert_problem, get, pop, push, write_minutes


async def test_maintenance_mode_is_off_and_stays_off(client: httpx.AsyncClient) -> None:
    for path, field in (
        ("/system/maintenance", "maintenanceMode"),
        ("/system/maintenance/pop", "popMaintenanceMode"),
    ):
        assert (await get(client, path))[field] is False
        switched_off = await client.post(f"/api/v1{path}", json={"enabled": False})
        assert (switched_off.status_code, switched_off.json()[field]) == (200, False)
        switched_on = await client.post(f"/api/v1{path}", json={"enabled": True})
        assert "no maintenance mode" in assert_problem(switched_on, 422, "invalid_request")
        assert (await get(client, path))[field] is False
        assert_problem(await client.post(f"/api/v1{path}", json={"enabled": "yes"}), 422, "invalid_request")


async def test_the_state_of_brokers_is_not_shared_over_udp(client: httpx.AsyncClient) -> None:
    state = await get(client, "/system/shared-state")
    assert (state["enabled"], state["maintenance_mode"], state["pop_maintenance_mode"]) == (
        False,
        False,
        False,
    )
    assert "PostgreSQL" in state["reason"]


async def test_no_migration_runs(client: httpx.AsyncClient) -> None:
    assert (await get(client, "/migration/status"))["status"] == "idle"


async def test_buffers_count_deferred_pushes(
    client: httpx.AsyncClient, app: FastAPI, database: Database
) -> None:
    await app_services(app).broker.drain.stop()
    [pushed] = await push(client, 1)
    segment = Segment(int(pushed["partition_id"]), [str(new_id())], [None], [None], [b"2"])
    await DeferredOperations(database).defer_pushes([LanePush(new_id(), segment)], SYSTEM_BUSY)
    buffers = await get(client, "/status/buffers")
    assert (buffers["pending"], buffers["failed"], buffers["dbHealthy"]) == (1, 0, True)
    maintenance = await get(client, "/system/maintenance")
    assert (maintenance["bufferedMessages"], maintenance["bufferStats"]["pendingCount"]) == (1, 1)


async def test_postgres_statistics_name_the_tables(client: httpx.AsyncClient) -> None:
    await push(client, *range(10))
    statistics = await get(client, "/analytics/postgres-stats")
    assert statistics["database"] == statistics["databaseCache"]["database"]
    assert statistics["databaseCache"]["cacheHits"] > 0
    sizes = {row["table"]: row["totalSizeBytes"] for row in statistics["tableSizes"]}
    assert sizes["partitions"] > 0
    assert list(sizes.values()) == sorted(sizes.values(), reverse=True)
    lists = ("tableCache", "indexCache", "deadTuples", "hotUpdates", "activeQueries", "autovacuumStatus")
    assert all(isinstance(statistics[name], list) for name in lists)
    assert int(statistics["bufferConfig"]["sharedBuffers"]) > 0


async def test_retention_counts_messages_that_were_removed_unfinished(
    client: httpx.AsyncClient, app: FastAPI
) -> None:
    services = app_services(app)
    await push(client, *range(3))
    queue = await services.broker.store.catalog.find_queue(DEFAULT_SCOPE, "q")
    assert queue is not None
    services.queue_metrics.count_expired(DEFAULT_SCOPE, queue.id, "q", "", 2)
    await write_minutes(services.worker_metrics)
    for params in ({}, {"queue": "q"}):
        report = await get(client, "/analytics/retention", interval="day", **params)
        assert report["bucketMinutes"] == 1440
        assert [point["evictionMsgs"] for point in report["series"]] == [2]
        assert (report["totals"]["evictionMsgs"], report["totals"]["totalMsgs"]) == (2, None)
    response = await client.get("/api/v1/analytics/retention", params={"queue": "none"})
    assert_problem(response, 404, "unknown_queue")


async def test_waiting_pops_are_reported_per_process(
    client: httpx.AsyncClient, app: FastAPI, wait_for_parked_pops: Callable[[int], Awaitable[None]]
) -> None:
    await push(client, 1)
    await pop(client)
    waiting = asyncio.create_task(pop(client, wait=True, timeout=60_000))
    await wait_for_parked_pops(1)
    worker = app_services(app).worker_metrics
    await write_minutes(worker)
    report = await get(client, "/analytics/queue-parked-replicas", interval="day")
    [replica] = report["replicas"]
    assert replica == {"hostname": worker.identity.hostname, "workerId": 0}
    assert replica.items() <= report["series"][-1].items()
    assert report["series"][-1]["parkedCount"] > 0
    waiting.cancel()
    response = await client.get("/api/v1/analytics/queue-parked-replicas", params={"queue": "q"})
    assert "per broker process" in assert_problem(response, 422, "invalid_request")


async def test_prometheus_metrics_are_at_the_path_of_queen(client: httpx.AsyncClient) -> None:
    response = await client.get("/metrics/prometheus")
    assert response.headers["content-type"].startswith("text/plain; version=")
    names = {family.name for family in text_string_to_metric_families(response.text)}
    assert "penstock_load" in names
