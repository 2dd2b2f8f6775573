"""What Prometheus reads."""

from __future__ import annotations

import asyncio
import json
import time

import asyncpg
import httpx
from fastapi import FastAPI
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from redis.asyncio import Redis

from penstock.streams.progress import PROGRESS_KEY
from penstock.telemetry import EXPORTED


async def scraped(client: httpx.AsyncClient) -> dict[str, dict[tuple[str, ...], float]]:
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = text_string_to_metric_families(answer.text)
    return {f.name: {tuple(s.labels.values()): s.value for s in f.samples} for f in families}


async def test_every_metric_of_the_table_is_exported(client: httpx.AsyncClient) -> None:
    assert set(await scraped(client)) == {exported.name for exported in EXPORTED}


async def test_operations_are_counted(client: httpx.AsyncClient) -> None:
    body = {"items": [{"queue": "q", "payload": n} for n in range(3)]}
    await client.post("/api/v1/push", json=body)
    metrics = await scraped(client)
    assert metrics["penstock_operation_requests"][("push",)] == 1
    assert metrics["penstock_operation_items"][("push",)] == 3
    assert metrics["penstock_database_connections"][("open",)] >= 1


REPORT = {
    "input_rows_per_s": 10.5,
    "processed_rows_per_s": 2000.0,
    "batch_ms": 250.0,
    "lag": {"penstock:metrics:queue:0": 3, "penstock:metrics:queue:1": None},
    "freshness": None,
    "rejected": 2,
    "lost": 5,
}


async def test_what_the_pipeline_reports_is_exported(client: httpx.AsyncClient, app: FastAPI) -> None:
    given = app.state.services
    progress = {"at": time.time() - 60, "metrics": {"queue": REPORT | {"freshness": time.time() - 30}}}
    await given.redis.set(PROGRESS_KEY, json.dumps(progress))
    try:
        metrics = await scraped(client)
    finally:
        await given.redis.delete(PROGRESS_KEY)
    assert 60 <= metrics["penstock_pipeline_report_age_seconds"][()] < 90
    assert 30 <= metrics["penstock_pipeline_freshness_age_seconds"][("queue",)] < 60
    assert metrics["penstock_pipeline_lag_entries"] == {("penstock:metrics:queue:0",): 3}
    assert metrics["penstock_pipeline_batch_seconds"] == {("queue",): 0.25}
    assert metrics["penstock_pipeline_input_entries_per_second"] == {("queue",): 10.5}
    assert metrics["penstock_pipeline_rejected_events"] == {("queue",): 2}
    assert metrics["penstock_pipeline_lost_events"] == {("queue",): 5}


async def test_without_redis_the_rest_is_still_exported(client: httpx.AsyncClient, app: FastAPI) -> None:
    given = app.state.services
    silent = await asyncio.start_server(lambda reader, writer: reader.read(), "127.0.0.1", 0)
    ports = (9, silent.sockets[0].getsockname()[1])  # nobody there, and one that never answers
    there = given.redis
    try:
        for port in ports:
            async with Redis.from_url(f"redis://127.0.0.1:{port}/0", socket_timeout=30) as away:
                object.__setattr__(given, "redis", away)
                metrics = await scraped(client)
            assert metrics["penstock_pipeline_lag_entries"] == {}
            assert metrics["penstock_database_connections"][("limit",)] > 0
    finally:
        object.__setattr__(given, "redis", there)
        silent.close()


async def test_who_holds_the_vacuum_horizon_is_named(
    database_url: str, client: httpx.AsyncClient, app: FastAPI
) -> None:
    given = app.state.services
    object.__setattr__(given, "settings", given.settings.model_copy(update={"horizon_s": 0}))
    holder = await asyncpg.connect(database_url)
    try:
        await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current()")
        pid = str(holder.get_server_pid())
        named = (await scraped(client))["penstock_vacuum_horizon_age_seconds"]
        assert ("idle in transaction", pid) in named
    finally:
        await holder.close()
