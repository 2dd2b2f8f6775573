"""What Prometheus reads."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time

import asyncpg
import httpx
from fastapi import FastAPI
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from redis.asyncio import Redis

from penstock.api.exporter.queue_samples import BoundedQueueSamples
from penstock.runqueue.task_model import QueueState
from penstock.streams.progress import PROGRESS_KEY
from penstock.telemetry import EXPORTED_METRICS, OVERFLOW


async def scraped(client: httpx.AsyncClient) -> dict[str, dict[tuple[str, ...], float]]:
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = text_string_to_metric_families(answer.text)
    return {f.name: {tuple(s.labels.values()): s.value for s in f.samples} for f in families}


async def test_every_metric_of_the_table_is_exported(client: httpx.AsyncClient) -> None:
    assert set(await scraped(client)) == {exported.name for exported in EXPORTED_METRICS}


async def test_the_description_of_the_api_tells_of_every_metric(client: httpx.AsyncClient) -> None:
    told = (await client.get("/openapi.json")).json()["paths"]["/metrics"]["get"]["description"]
    assert all(f"| `{exported.name}` |" in told and exported.help in told for exported in EXPORTED_METRICS)


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


async def test_queues_of_both_kinds_are_exported(client: httpx.AsyncClient, app: FastAPI) -> None:
    body = {"items": [{"queue": "durable", "payload": n} for n in range(5)]}
    await client.post("/api/v1/push", json=body)
    await client.get("/api/v1/pop/queue/durable?batch=2&consumerGroup=g")
    queue = f"tasks-{time.time_ns()}"
    tasks = [{"payload": 1}, {"payload": 2}, {"payload": 3, "delayMs": 60_000}]
    await client.post(f"/api/v1/run-queues/{queue}/tasks", json={"tasks": tasks})
    limited = await client.put(f"/api/v1/run-queues/{queue}/limits", json={"concurrency": 7})
    assert limited.is_success, limited.text
    app.state.services.worker_metrics.tick()
    metrics = await scraped(client)
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


async def test_those_who_know_only_the_older_format_get_it(client: httpx.AsyncClient) -> None:
    await client.post("/api/v1/push", json={"items": [{"queue": "q", "payload": 1}]})
    answer = await client.get("/metrics", headers={"Accept": "text/plain;version=0.0.4"})
    assert answer.headers["content-type"].startswith("text/plain")
    assert "# TYPE penstock_requests_total counter" in answer.text
    promtool = shutil.which("promtool")
    if promtool is not None:
        checked = await asyncio.to_thread(
            subprocess.run,
            [promtool, "check", "metrics"],
            input=answer.content,
            capture_output=True,
            check=False,
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_past_a_limit_queues_share_a_label() -> None:
    labels = BoundedQueueSamples(max_labels=3)
    for number in range(5):
        labels.add(f"q{number}", "", number, 1, float(number))
    labels.add("q5", "g", 100, 100, 100.0)  # its queue speaks for it
    assert labels.depth == {("q0", ""): 0, ("q1", ""): 1, ("q2", ""): 2, (OVERFLOW, ""): 7}
    assert (labels.inflight[OVERFLOW, ""], labels.age[OVERFLOW, ""]) == (2, 4.0)


def test_run_queues_past_a_limit_share_what_can_be_summed() -> None:
    labels = BoundedQueueSamples(max_labels=1)
    for number in range(3):
        labels.add_run_queue(QueueState(f"q{number}", 1, 2 + number, 3, 0, 4, False, 500, {"enqueued": 9}))
    assert labels.depth == {("q0", ""): 1, (OVERFLOW, ""): 2}
    assert labels.delayed == {("q0",): 2, (OVERFLOW,): 7}
    assert (labels.limit, labels.tasks) == ({("q0",): 4}, {("q0", "enqueued"): 9})
