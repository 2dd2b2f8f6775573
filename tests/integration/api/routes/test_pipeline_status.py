"""The routes for the state of the pipeline, on real servers and without a pipeline."""

from __future__ import annotations

import time

import httpx
import pytest
from redis import Redis

from penstock.config import Settings
from penstock.definitions import QUEUE, WORKER
from penstock.streams.batch_history import MAX_BATCHES, add_batches
from penstock.streams.progress import PROGRESS_KEY, write_progress
from penstock.warehouse.clickhouse_client import connect
from penstock.warehouse.schema import SET_ASIDE_TABLE
from tests.integration.api import shared_app
from tests.integration.api.calls import get
from tests.integration.api.pipeline_reports import batch, report
from tests.integration.api.routes.test_series_routes import shared_settings, warehouse_url

__all__ = ["shared_settings", "warehouse_url"]
app = shared_app.app

PATH = "/pipeline"


@pytest.fixture
def redis(shared_settings: Settings) -> Redis:
    client = Redis.from_url(shared_settings.redis_url)
    client.flushdb()
    return client


async def test_a_pipeline_that_never_ran_has_a_problem_and_the_lag_of_its_streams(
    client: httpx.AsyncClient, redis: Redis
) -> None:
    redis.xadd(QUEUE.stream_keys[0], {"t": 1})
    status = await get(client, PATH)
    assert (status["state"], status["isRunning"], status["spark"]) == (None, False, None)
    assert status["problem"] == "The pipeline has not reported yet. Start it with `penstock up`."
    assert [(metric["metric"], metric["lag"]) for metric in status["metrics"]] == [
        ("queue", 1),
        ("worker", 0),
    ]
    [stream, *others] = status["metrics"][0]["streams"]
    assert stream == {"stream": QUEUE.stream_keys[0], "shard": 0, "lag": 1}
    assert {other["lag"] for other in others} <= {0}


async def test_the_last_report_and_the_last_batches_are_shown(
    client: httpx.AsyncClient, redis: Redis
) -> None:
    write_progress(redis, report())
    add_batches(redis, "queue", [batch(number) for number in range(MAX_BATCHES + 5)])
    status = await get(client, PATH)
    assert (status["state"], status["isRunning"], status["problem"]) == ("running", True, None)
    assert (status["inputPerSecond"], status["rejected"], status["lost"]) == (12.5, 1, 2)
    assert 2 <= status["freshnessAgeSeconds"] < 60
    batches = status["metrics"][0]["batches"]
    assert [entry["batchId"] for entry in batches] == list(range(5, MAX_BATCHES + 5)), "the newest are kept"
    assert batches[0] == {
        "batchId": 5,
        "startedAt": "2027-01-15T08:00:05.000Z",
        "durationMs": 40.0,
        "planMs": 5.0,
        "readMs": 20.0,
        "insertMs": 10.0,
        "checkpointMs": 4.0,
        "entries": 6,
        "rows": 3,
    }
    assert status["metrics"][1]["batches"] == []
    assert status["spark"]["stages"] == [{"stage": 4, "tasks": 2, "active": 1, "completed": 1, "failed": 0}]
    assert status["spark"]["executors"][0]["completedTasks"] == 9


async def test_an_old_report_is_of_a_pipeline_that_does_not_run(
    client: httpx.AsyncClient, redis: Redis
) -> None:
    write_progress(redis, report(at=time.time() - 100))
    status = await get(client, PATH)
    assert (status["state"], status["isRunning"]) == ("running", False)
    assert "s old. Check its log" in status["problem"]


async def test_a_report_of_another_version_is_shown_as_far_as_it_goes(
    client: httpx.AsyncClient, redis: Redis
) -> None:
    write_progress(redis, report())
    text = redis.get(PROGRESS_KEY)
    assert isinstance(text, bytes)
    redis.set(PROGRESS_KEY, text.replace(b'"spark"', b'"flint"').replace(b'"worker"', b'"oven"'))
    status = await get(client, PATH)
    assert status["spark"] is None
    assert status["metrics"][1]["metric"] == WORKER.name
    assert status["metrics"][1]["state"] is None


async def test_losses_are_listed_by_metric_and_reason(client: httpx.AsyncClient, warehouse_url: str) -> None:
    warehouse = connect(warehouse_url)
    now_s = int(time.time())
    for reason, events, age_s in (("trimmed", 5, 60), ("trimmed", 2, 30), ("not_a_number", 1, 10)):
        warehouse.command(
            f"INSERT INTO {SET_ASIDE_TABLE} (metric, reason, stream, at, began_at, events, example) VALUES "
            f"('queue', '{reason}', 'stream-{age_s}', {now_s - age_s}, {now_s - age_s}, {events}, 'x{age_s}')"
        )
    warehouse.close()
    losses = (await get(client, f"{PATH}/losses"))["losses"]
    assert [(loss["reason"], loss["events"], loss["example"]) for loss in losses] == [
        ("not_a_number", 1, "x10"),
        ("trimmed", 7, "x30"),
    ]
    assert losses[1]["first"] < losses[1]["last"]
