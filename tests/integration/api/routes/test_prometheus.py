"""`GET /metrics`, as Prometheus reads it."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator

import asyncpg
import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI
from redis.asyncio import Redis

from penstock.api.exporter.queue_samples import queue_samples
from penstock.definitions import QUEUE
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from penstock.streams.positions import CONSUMER_GROUP, decode_text
from penstock.streams.progress import PROGRESS_KEY
from penstock.telemetry import EXPORTED_METRICS, QUEUE_DEPTH, QUEUES_UNSAMPLED
from tests.deadlines import deadline_s
from tests.integration.api.calls import app_services, scrape_metrics
from tests.integration.durable.alerts.alert_rows import add_channel, add_incident, add_notice


async def test_every_declared_metric_is_exported(client: httpx.AsyncClient) -> None:
    assert set(await scrape_metrics(client)) == {metric.name for metric in EXPORTED_METRICS}


async def test_openapi_describes_every_metric(client: httpx.AsyncClient) -> None:
    description = (await client.get("/openapi.json")).json()["paths"]["/metrics"]["get"]["description"]
    assert all(
        f"| `{metric.name}` |" in description and metric.help in description for metric in EXPORTED_METRICS
    )


async def test_operations_are_counted(client: httpx.AsyncClient) -> None:
    body = {"items": [{"queue": "q", "payload": n} for n in range(3)]}
    await client.post("/api/v1/push", json=body)
    metrics = await scrape_metrics(client)
    assert metrics["penstock_operation_requests"][("push",)] == 1
    assert metrics["penstock_operation_items"][("push",)] == 3
    assert metrics["penstock_database_connections"][("open",)] >= 1


REPORT = {
    "state": "running",
    "failures": 0,
    "restarts": 0,
    "last_failure": None,
    "input_rows_per_s": 10.5,
    "processed_rows_per_s": 2000.0,
    "batch_ms": 250.0,
    "lag": {"penstock:metrics:queue:0": 3, "penstock:metrics:queue:1": None},
    "freshness": None,
    "rejected": 2,
    "lost": 5,
}


@pytest_asyncio.fixture
async def redis(app: FastAPI) -> AsyncIterator[Redis]:
    """The Redis of the app, without a report and without streams of the pipeline."""
    redis = app_services(app).redis
    keys = (PROGRESS_KEY, *QUEUE.stream_keys)
    await redis.delete(*keys)
    yield redis
    await redis.delete(*keys)


async def test_the_pipeline_report_is_exported(client: httpx.AsyncClient, redis: Redis) -> None:
    report = REPORT | {"freshness": time.time() - 30}
    progress = {"at": time.time(), "state": "running", "metrics": {"queue": report}}
    await redis.set(PROGRESS_KEY, json.dumps(progress))
    metrics = await scrape_metrics(client)
    assert 0 <= metrics["penstock_pipeline_report_age_seconds"][()] < 30
    assert 30 <= metrics["penstock_pipeline_freshness_age_seconds"][("queue",)] < 60
    assert metrics["penstock_pipeline_batch_seconds"] == {("queue",): 0.25}
    assert metrics["penstock_pipeline_input_entries_per_second"] == {("queue",): 10.5}
    assert metrics["penstock_pipeline_rejected_events"] == {("queue",): 2}
    assert metrics["penstock_pipeline_lost_events"] == {("queue",): 5}
    assert metrics["penstock_pipeline_query_running"] == {("queue",): 1}


async def test_failures_and_restarts_of_queries_are_exported(client: httpx.AsyncClient, redis: Redis) -> None:
    failed = REPORT | {"state": "failed", "failures": 7, "restarts": 6, "last_failure": "Table is gone."}
    progress = {"at": time.time(), "state": "failing", "metrics": {"queue": failed, "worker": REPORT}}
    await redis.set(PROGRESS_KEY, json.dumps(progress))
    metrics = await scrape_metrics(client)
    assert metrics["penstock_pipeline_query_failures"] == {("queue",): 7, ("worker",): 0}
    assert metrics["penstock_pipeline_query_restarts"] == {("queue",): 6, ("worker",): 0}
    assert metrics["penstock_pipeline_query_running"] == {("queue",): 0, ("worker",): 1}
    health = (await client.get("/health")).json()["parts"]["pipeline"]
    assert health["status"] == "down"
    assert health["detail"] == (
        "The queue query has failed 7 times and will be started again: Table is gone."
    )


async def test_the_lag_grows_while_the_pipeline_is_down(client: httpx.AsyncClient, redis: Redis) -> None:
    progress = {"at": time.time() - 60, "state": "running", "metrics": {"queue": REPORT}}
    await redis.set(PROGRESS_KEY, json.dumps(progress))
    key = QUEUE.stream_keys[0]
    ids = [await redis.xadd(key, {"any": "entry"}) for _ in range(5)]
    metrics = await scrape_metrics(client)
    assert metrics["penstock_pipeline_lag_entries"][(key,)] == 5
    await redis.xgroup_create(key, CONSUMER_GROUP, decode_text(ids[0]), entries_read=1)
    metrics = await scrape_metrics(client)
    assert metrics["penstock_pipeline_lag_entries"][(key,)] == 4
    # What the last report says of rates is not true any more.
    assert metrics["penstock_pipeline_input_entries_per_second"] == {}
    assert metrics["penstock_pipeline_query_running"] == {("queue",): 0}


@pytest.mark.parametrize(
    ("state", "status", "detail"),
    [
        ("starting", "down", "The pipeline is starting and does not read its streams yet."),
        ("stopped", "down", "The pipeline has stopped. Start it with `penstock up`."),
        ("running", "up", "running"),
        ("waiting for ClickHouse", "up", "waiting for ClickHouse"),
    ],
)
async def test_the_pipeline_is_healthy_when_it_reads(
    client: httpx.AsyncClient, redis: Redis, state: str, status: str, detail: str
) -> None:
    await redis.set(PROGRESS_KEY, json.dumps({"at": time.time(), "state": state, "metrics": {}}))
    health = (await client.get("/health")).json()["parts"]["pipeline"]
    assert (health["status"], health["detail"]) == (status, detail)


async def _never_respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def test_without_redis_other_metrics_are_still_exported(
    client: httpx.AsyncClient, app: FastAPI
) -> None:
    services = app_services(app)
    silent = await asyncio.start_server(_never_respond, "127.0.0.1", 0)
    ports = (9, silent.sockets[0].getsockname()[1])  # a closed port, and a server that never responds
    original_redis = services.redis
    try:
        for port in ports:
            async with Redis.from_url(f"redis://127.0.0.1:{port}/0", socket_timeout=deadline_s(30)) as away:
                object.__setattr__(services, "redis", away)
                metrics = await scrape_metrics(client)
            assert metrics["penstock_pipeline_lag_entries"] == {}
            assert metrics["penstock_database_connections"][("limit",)] > 0
    finally:
        object.__setattr__(services, "redis", original_redis)
        silent.close()


async def test_vacuum_horizon_holders_are_exported(
    database_url: str, client: httpx.AsyncClient, app: FastAPI
) -> None:
    services = app_services(app)
    object.__setattr__(services, "settings", services.settings.model_copy(update={"horizon_s": 0}))
    holder = await asyncpg.connect(database_url)
    try:
        await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current()")
        pid = str(holder.get_server_pid())
        ages = (await scrape_metrics(client))["penstock_vacuum_horizon_age_seconds"]
        assert ("idle in transaction", pid) in ages
    finally:
        await holder.close()


async def test_queues_of_both_kinds_are_exported(client: httpx.AsyncClient, app: FastAPI) -> None:
    body = {"items": [{"queue": "durable", "payload": n} for n in range(5)]}
    await client.post("/api/v1/push", json=body)
    await client.get("/api/v1/pop/queue/durable?batch=2&consumerGroup=g")
    queue = f"tasks-{time.time_ns()}"
    tasks = [{"payload": 1}, {"payload": 2}, {"payload": 3, "delayMs": 60_000}]
    await client.post(f"/api/v1/run-queues/{queue}/tasks", json={"tasks": tasks})
    limited = await client.put(f"/api/v1/run-queues/{queue}/limits", json={"concurrency": 7})
    assert limited.is_success, limited.text
    app_services(app).worker_metrics.sample()
    metrics = await scrape_metrics(client)
    assert metrics["penstock_queue_depth"][("g", "durable")] == 3
    assert metrics["penstock_queue_inflight"][("g", "durable")] == 2
    assert metrics["penstock_queue_depth"][("", queue)] == 2
    assert metrics["penstock_queue_concurrency_limit"][(queue,)] == 7
    assert metrics["penstock_queue_delayed"][(queue,)] == 1
    assert metrics["penstock_queue_tasks"][("enqueued", queue)] == 3
    assert metrics["penstock_queue_tasks"][("acked", queue)] == 0
    assert 0 <= metrics["penstock_queue_oldest_age_seconds"][("", "durable")] < 60
    assert metrics["penstock_queue_messages"][("pushed", "", "durable")] == 5
    assert metrics["penstock_queue_messages"][("popped", "g", "durable")] == 2
    assert metrics["penstock_requests"][("push",)] == 1
    assert metrics["penstock_workers"][()] == 1
    assert metrics["penstock_event_loop_late_seconds"].keys() == {("0",)}


async def test_queues_beyond_the_limit_are_counted(client: httpx.AsyncClient, app: FastAPI) -> None:
    names = [f"q{number}" for number in range(5)]
    for name in names:
        await client.post("/api/v1/push", json={"items": [{"queue": name, "payload": 1}]})
    samples = await queue_samples(app_services(app), [DEFAULT_SCOPE], max_queues=3)
    sampled = {queue for *_, queue, _ in samples[QUEUE_DEPTH]}
    assert sampled & set(names) == {"q0", "q1", "q2"}
    assert samples[QUEUES_UNSAMPLED] == {(*DEFAULT_SCOPE,): 2}
    assert (await scrape_metrics(client))["penstock_queues_unsampled"][()] == 0


async def test_the_evaluator_incidents_and_notices_are_exported(
    client: httpx.AsyncClient, database: Database
) -> None:
    first = await scrape_metrics(client)
    assert first["penstock_alert_evaluation_lag_seconds"] == {}
    assert first["penstock_incidents"]["warning", "open"] == 0

    incident_id = await add_incident(database)
    await add_notice(database, incident_id, await add_channel(database))
    await database.fetch("UPDATE alert_incidents SET acknowledged_at = now() WHERE id = $1", incident_id)
    await add_incident(database)
    await database.fetch(
        "UPDATE alert_evaluator SET evaluated_to = now() - interval '1 hour', duration_s = 0.5, "
        "evaluations = 7, failures = 2"
    )

    metrics = await scrape_metrics(client)
    assert 3600 <= metrics["penstock_alert_evaluation_lag_seconds"][()] < 7200
    assert metrics["penstock_alert_evaluation_duration_seconds"][()] == 0.5
    assert metrics["penstock_alert_evaluations"][()] == 7
    assert metrics["penstock_alert_evaluation_failures"][()] == 2
    incidents = metrics["penstock_incidents"]
    assert {labels: value for labels, value in incidents.items() if value} == {
        ("warning", "open"): 1,
        ("warning", "acknowledged"): 1,
    }
    assert metrics["penstock_alert_notices"] == {("pending",): 1, ("sent",): 0, ("failed",): 0}


async def test_the_text_format_is_served_on_request(client: httpx.AsyncClient) -> None:
    await client.post("/api/v1/push", json={"items": [{"queue": "q", "payload": 1}]})
    response = await client.get("/metrics", headers={"Accept": "text/plain;version=0.0.4"})
    assert response.headers["content-type"].startswith("text/plain")
    assert "# TYPE penstock_requests_total counter" in response.text
    promtool = shutil.which("promtool")
    if promtool is not None:
        checked = await asyncio.to_thread(
            subprocess.run,
            [promtool, "check", "metrics"],
            input=response.content,
            capture_output=True,
            check=False,
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr
