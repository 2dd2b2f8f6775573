"""The routes for throughput, lag and health of brokers over time."""

from __future__ import annotations

from datetime import timedelta

import httpx
import pytest
from fastapi import FastAPI

from penstock.api.schemas.time_window import parse_window
from penstock.broker.self_metrics.worker_metrics import WorkerMetrics
from penstock.clock import to_utc
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from penstock.warehouse.series.window import MAX_POINTS
from tests.integration.api.calls import ack, app_services, assert_problem, get, pop, push, write_minutes


@pytest.fixture
def worker(app: FastAPI) -> WorkerMetrics:
    return app_services(app).worker_metrics


async def test_throughput_has_rates_lags_and_gaps(client: httpx.AsyncClient, worker: WorkerMetrics) -> None:
    await push(client, 1, 2, 3)
    [message] = await pop(client)
    await ack(client, message)
    await write_minutes(worker)
    body = await get(client, "/analytics/throughput", interval="minute")
    assert body["interval"] == "1m"
    gaps = [point for point in body["series"] if not point["coveredSeconds"]]
    covered = [point for point in body["series"] if point["coveredSeconds"]]
    assert len(covered) in (1, 2)  # the minute may have ended meanwhile
    assert len(gaps) >= 58
    assert {gap["pushMessages"] for gap in gaps} == {gap["pushPerSecond"] for gap in gaps} == {None}
    assert all(gap.keys() == covered[0].keys() for gap in gaps)
    totals = {name: sum(p[name] for p in covered) for name in ("pushMessages", "popMessages", "ackMessages")}
    assert totals == {"pushMessages": 3, "popMessages": 1, "ackMessages": 1}
    for point in covered:
        rate = point["pushMessages"] / point["coveredSeconds"]
        assert point["pushPerSecond"] == pytest.approx(rate, rel=0.02, abs=0.01)
    [popped] = [point for point in covered if point["popMessages"]]
    assert popped["p50LagMs"] == popped["p99LagMs"] == popped["maxLagMs"] == popped["avgLagMs"]
    [day] = (await get(client, "/analytics/throughput", bucket=1440))["series"][-1:]
    assert day["pushMessages"] == 3


async def test_queue_routes_report_lag_and_operations(
    client: httpx.AsyncClient, worker: WorkerMetrics
) -> None:
    await push(client, 1, 2, queue="a")
    await push(client, 3, queue="b")
    for status in ("retry", "failed", "dlq"):
        [message] = await pop(client, queue="a")
        await ack(client, message, status)
    await write_minutes(worker)
    points_of_all = (await get(client, "/analytics/queue-ops", interval="hour"))["series"]
    pushed: dict[str, int] = {}
    for point in points_of_all:
        pushed[point["queueName"]] = pushed.get(point["queueName"], 0) + point["pushMessages"]
    assert pushed == {"a": 2, "b": 1}
    points = (await get(client, "/analytics/queue-ops", queue="a", interval="day"))["series"]
    assert (points[-1]["pushMessages"], points[-1]["popMessages"], points[-1]["deadLetters"]) == (2, 3, 1)
    assert (points[-1]["ackReleased"], points[-1]["ackFailed"]) == (1, 1)
    points = (await get(client, "/analytics/queue-lag", queue="a", interval="day"))["series"]
    assert points[-1]["popCount"] == 3
    assert 0 <= points[-1]["p95LagMs"] <= points[-1]["maxLagMs"]
    quiet = (await get(client, "/analytics/queue-lag", queue="b", interval="day"))["series"][-1]
    assert (quiet["popCount"], quiet["avgLagMs"], quiet["p99LagMs"]) == (0, None, None)
    other = await get(client, "/analytics/queue-lag", queue="a", consumerGroup="none", interval="day")
    assert other["series"][-1]["popCount"] == 0


async def test_worker_and_system_metrics_report_the_state_of_brokers(
    client: httpx.AsyncClient, worker: WorkerMetrics
) -> None:
    await push(client, 1)
    await write_minutes(worker)
    body = await get(client, "/analytics/worker-metrics", interval="day")
    point = body["series"][-1]
    assert (point["workers"], point["pushRequests"], point["databaseErrors"]) == (1, 1, 0)
    assert point["connections"]["freeAvg"] + point["connections"]["busyAvg"] == 10
    assert point["pending"]["operations"].keys() >= {"push", "pop", "ack"}
    [process] = (await get(client, "/analytics/worker-metrics", each=True))["workers"]
    assert (process["pid"], process["worker"]) == (worker.identity.pid, 0)
    assert sum(point["pushMessages"] for point in process["series"]) == 1
    assert (await get(client, "/analytics/worker-metrics", each=True, hostname="elsewhere"))["workers"] == []
    system = (await get(client, "/analytics/system-metrics", interval="day"))["series"][-1]
    assert system["residentBytes"]["max"] > 10 << 20
    assert system["cpuSeconds"] > 0
    gap = (await get(client, "/analytics/system-metrics", worker=9))["series"][0]
    assert gap["residentBytes"] is None


async def test_status_reports_throughput(client: httpx.AsyncClient, worker: WorkerMetrics) -> None:
    await push(client, *range(20))
    await write_minutes(worker)
    for path in ("/status", "/resources/overview"):
        rates = (await get(client, path))["throughput"]
        assert rates["coveredSeconds"] > 0
        assert rates["pushPerSecond"] == pytest.approx(20 / rates["coveredSeconds"], rel=0.02)


async def test_an_invalid_window_is_refused(client: httpx.AsyncClient) -> None:
    details_by_query = {
        "from=2026-01-02&to=2026-01-01": "from must be before to",
        "interval=minute&bucket=5": "either interval or bucket",
        "interval=minute&from=2020-01-01": f"maximum of {MAX_POINTS:,}",
        "bucket=0": "bucket",
        "from=yesterday": "from",
    }
    for name in ("throughput", "queue-lag", "queue-ops", "worker-metrics", "system-metrics"):
        for query, detail in details_by_query.items():
            response = await client.get(f"/api/v1/analytics/{name}?{query}")
            assert detail in assert_problem(response, 422, "invalid_request")


async def test_reads_use_minute_rows_only(database: Database) -> None:
    """The plans name neither the log nor positions, so the cost does not depend on messages."""
    now = to_utc(1_900_000_000)
    window = (now - timedelta(hours=1), now, timedelta(minutes=1))
    queries = {
        "get_throughput($1, $2, $3)": window,
        "worker_health_v1($1, $2, $3, true, NULL, NULL)": window,
        "queue_minute_metrics_v1($1, $2, $3, $4, $5, $6, 'q', NULL)": (*DEFAULT_SCOPE, *window),
    }
    for query, arguments in queries.items():
        rows = await database.fetch(f"EXPLAIN SELECT * FROM {query}", *arguments)
        plan = "\n".join(row[0] for row in rows)
        assert "metrics" in plan
        assert " log" not in plan
        assert "positions" not in plan
        assert "Seq Scan" not in plan


def test_a_window_starts_with_a_whole_bucket() -> None:
    window = parse_window(to_utc(1_900_000_100), to_utc(1_900_000_300), None, 1)
    assert [bucket.timestamp() for bucket in window.buckets] == [1_900_000_080 + 60 * n for n in range(4)]
    assert parse_window(to_utc(0), to_utc(86_400 * 30), None, None).to_dict()["interval"] == "3h"
