"""The routes for series, on real servers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from redis import Redis

from penstock.api.app import create_app
from penstock.config import Settings
from penstock.definitions import QUEUE
from penstock.embedded.servers.ports import any_free_port
from penstock.streams.positions import Position, write_positions
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.schema_migrations import migrate
from penstock.warehouse.series.series_fields import FIELDS
from tests.integration.api import shared_app
from tests.integration.api.calls import assert_problem, get, push
from tests.integration.warehouse.landing_rows import insert_rows, landing_row

app = shared_app.app


@pytest.fixture(scope="module")
def warehouse_url(clickhouse_url: str) -> str:
    url = urlunsplit(urlsplit(clickhouse_url)._replace(path=f"/test_{uuid4().hex[:12]}"))
    migrate(url)
    return url


@pytest.fixture
def warehouse(warehouse_url: str) -> Warehouse:
    return connect(warehouse_url)


@pytest.fixture(scope="module")
def shared_settings(shared_settings: Settings, warehouse_url: str) -> Settings:
    """Settings without an emitter."""
    return shared_settings.model_copy(update={"clickhouse_url": warehouse_url, "metrics_enabled": False})


@pytest.fixture
def queue() -> str:
    return f"orders-{uuid4().hex[:8]}"


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


def parse_seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def last_point(series: dict[str, Any]) -> dict[str, Any]:
    point: dict[str, Any] = series["timeseries"][-1]
    return point


async def test_a_queue_has_a_series(client: httpx.AsyncClient, warehouse: Warehouse, queue: str) -> None:
    await push(client, 1, queue=queue)
    time_s = time.time() - 30
    insert_rows(
        warehouse,
        landing_row(time_s, queue=queue, enqueued=2, depth=(9, 4), delayed=(6, 5), running=1, limit=2),
        landing_row(time_s, queue=queue, group="g", dequeued=1, depth=3, wait_ms=(5,)),
    )
    series = await get(client, f"/queues/{queue}/metrics", period="5m")
    assert (series["queue"], series["resolution"], series["tier"]) == (queue, "5s", "5s")
    assert len(series["timeseries"]) == 60
    assert set(last_point(series)) == {"timestamp", *FIELDS, "carried", "complete"}
    assert last_point(series)["queue_depth"] == {"max": 4, "last": 4}
    assert last_point(series)["delayed"] == {"max": 5, "last": 5}
    assert last_point(series)["concurrency"] == {"max": 1, "limit": 2, "utilization_pct": 50.0}
    assert last_point(series)["carried"]
    assert sum(point["throughput"]["enqueued"] for point in series["timeseries"]) == 2
    assert parse_seconds(series["freshness"]) == pytest.approx(time_s, abs=0.01)
    group = await get(client, f"/queues/{queue}/metrics", group="g")
    assert (group["group"], last_point(group)["queue_depth"]["last"]) == ("g", 3)


async def test_fields_of_a_point_can_be_selected(
    client: httpx.AsyncClient, warehouse: Warehouse, queue: str
) -> None:
    await push(client, 1, queue=queue)
    insert_rows(warehouse, landing_row(time.time() - 30, queue=queue, enqueued=2, depth=4, oldest_age_ms=7))
    path = f"/queues/{queue}/metrics"
    # All requests read the same window, also when a bucket ends between them.
    window = {"to": datetime.now(UTC).isoformat(), "period": "30m"}
    whole = await get(client, path, **window)
    for fields in ("throughput", "latency,queue_depth", "failures", "runtime, concurrency", "delayed"):
        chosen = await get(client, path, fields=fields, **window)
        names = [name.strip() for name in fields.split(",")]
        assert set(last_point(chosen)) == {"timestamp", *names, "carried", "complete"}
        assert [point["throughput"] for point in chosen["timeseries"] if "throughput" in names] == [
            point["throughput"] for point in whole["timeseries"] if "throughput" in names
        ]
        if "queue_depth" in names:
            assert (
                last_point(chosen)["queue_depth"] == last_point(whole)["queue_depth"] == {"max": 4, "last": 4}
            )
    for fields in ("throughput,speed", "", ","):
        refused = await client.get(f"/api/v1{path}", params={"fields": fields})
        assert ", ".join(FIELDS) in assert_problem(refused, 422, "invalid_request")


def select_path(point: dict[str, Any], path: tuple[str, ...]) -> object:
    value: Any = point
    for name in path:
        value = value[name]
    return value


async def test_columns_hold_the_values_of_the_points(
    client: httpx.AsyncClient, warehouse: Warehouse, queue: str
) -> None:
    await push(client, 1, queue=queue)
    insert_rows(
        warehouse,
        landing_row(time.time() - 700, queue=queue, enqueued=2, depth=(90_210, 4), oldest_age_ms=7),
        landing_row(time.time() - 130, queue=queue, dequeued=1, acked=2, nacked=1, wait_ms=(5, 8, 123_456)),
    )
    # The window has ended, so its values do not depend on the time of the request.
    window = {"to": (datetime.now(UTC) - timedelta(minutes=1)).isoformat(), "period": "10m"}
    for path in (f"/queues/{queue}/metrics", "/environments/default/queue-metrics", "/workers/h/0/metrics"):
        points = await get(client, path, format="points", **window)
        columns = await get(client, path, format="columns", **window)
        default = await get(client, path, **window)
        assert default["timeseries"] == points["timeseries"]
        assert points.keys() - columns.keys() == {"timeseries"}
        assert columns.keys() - points.keys() == {"columns"}
        assert columns["columns"].keys() == last_point(points).keys()
        for name, column in columns["columns"].items():
            members = (
                {(name, key): values for key, values in column.items()}
                if isinstance(column, dict)
                else {(name,): column}
            )
            for member, values in members.items():
                assert values == [select_path(point, member) for point in points["timeseries"]], member
        refused = await client.get(f"/api/v1{path}", params={"format": "csv"})
        message = assert_problem(refused, 422, "invalid_request")
        assert "format" in message
        assert "'points' or 'columns'" in message


async def test_an_environment_has_a_series_of_its_own(
    client: httpx.AsyncClient, warehouse: Warehouse
) -> None:
    environment = f"env-{uuid4().hex[:8]}"
    time_s = time.time() - 60
    insert_rows(
        warehouse,
        landing_row(time_s, queue="a", environment=environment, enqueued=2, depth=50, wait_ms=(10,)),
        landing_row(time_s, queue="b", environment=environment, enqueued=3, depth=70, wait_ms=(30,)),
        landing_row(time_s, queue="b", environment=environment, delayed=8, env_delayed=(14, 11)),
        landing_row(time_s, queue="", environment=environment, env_depth=(130, 120), env_oldest_age_ms=1_000),
        landing_row(time_s, queue="a", environment="another", enqueued=9, env_depth=9),
    )
    names = {"organization": "default", "project": "default", "environment": environment}
    assert (await client.post("/api/v1/environments", json=names)).status_code == 201
    path = f"/api/v1/environments/{environment}/queue-metrics?period=5m"
    assert_problem(await client.get(path), 404, "unknown_environment")
    response = await client.get(path, headers={"X-Penstock-Environment": "/".join(names.values())})
    series = response.json()
    assert series["environment"] == environment
    [point] = [p for p in series["timeseries"] if p["throughput"]["enqueued"]]
    assert point["throughput"]["enqueued"] == 5
    assert point["queue_depth"] == {"max": 130, "last": 120}
    assert point["delayed"] == {"max": 14, "last": 11}
    assert point["latency"]["avg_wait_ms"] == 20.0
    assert last_point(series)["queue_depth"] == {"max": 120, "last": 120}
    assert last_point(series)["carried"]
    assert last_point(series)["latency"]["max_age_ms"] > 50_000


async def test_an_unknown_queue_or_environment_gets_404(client: httpx.AsyncClient) -> None:
    unknown = await client.get("/api/v1/queues/unknown/metrics")
    assert "unknown" in assert_problem(unknown, 404, "unknown_queue")
    unknown = await client.get("/api/v1/environments/missing/queue-metrics")
    assert "missing" in assert_problem(unknown, 404, "unknown_environment")


async def test_an_environment_without_metrics_has_an_empty_series(client: httpx.AsyncClient) -> None:
    series = await get(client, "/environments/default/queue-metrics")
    assert series["environment"] == "default"


async def test_a_deleted_queue_keeps_its_series(
    client: httpx.AsyncClient, warehouse: Warehouse, queue: str
) -> None:
    time_s = time.time() - 60
    insert_rows(
        warehouse, landing_row(time_s, queue=queue, depth=4), landing_row(time_s + 20, queue=queue, depth=0)
    )
    assert last_point(await get(client, f"/queues/{queue}/metrics"))["queue_depth"]["last"] == 0


@pytest.mark.parametrize(
    "window", [{"period": "soon"}, {"resolution": "7s"}, {"from": "2020-01-01T00:00:00Z"}, {"to": "x"}]
)
async def test_an_invalid_window_is_refused_by_series_routes(
    client: httpx.AsyncClient, queue: str, window: dict[str, str]
) -> None:
    await push(client, 1, queue=queue)
    for path in (f"/api/v1/queues/{queue}/metrics", "/api/v1/environments/default/queue-metrics"):
        assert_problem(await client.get(path, params=window), 422, "invalid_request")


async def test_series_without_clickhouse_get_503(
    client_without_clickhouse: httpx.AsyncClient, queue: str
) -> None:
    await push(client_without_clickhouse, 1, queue=queue)
    for path in (f"/api/v1/queues/{queue}/metrics", "/api/v1/environments/default/queue-metrics"):
        response = await client_without_clickhouse.get(path)
        assert "does not answer" in assert_problem(response, 503, "warehouse_unavailable")
        assert response.headers["retry-after"] == "1"
    assert_problem(
        await client_without_clickhouse.get("/api/v1/queues/unknown/metrics"), 404, "unknown_queue"
    )


async def test_an_unknown_group_gets_404_and_a_deleted_one_keeps_its_series(
    client: httpx.AsyncClient, warehouse: Warehouse, queue: str
) -> None:
    await push(client, 1, queue=queue)
    path = f"/api/v1/queues/{queue}/metrics"
    detail = assert_problem(await client.get(path, params={"group": "biling"}), 404, "unknown_group")
    assert "'biling'" in detail
    await client.get(f"/api/v1/pop/queue/{queue}", params={"consumerGroup": "billing"})
    insert_rows(warehouse, landing_row(time.time() - 60, queue=queue, group="former", dequeued=1))
    for group in ("billing", "former"):
        assert (await client.get(path, params={"group": group})).status_code == 200


@pytest.mark.parametrize(
    ("path", "query", "detail"),
    [
        ("queues/{queue}/metrics", {"perid": "1h"}, "'perid': did you mean period?"),
        (
            "queues/{queue}/metrics",
            {"consumerGroup": "g"},
            "Known names: period, from, to, resolution, group",
        ),
        ("environments/default/queue-metrics", {"group": "g"}, "'group'. Known names: period"),
        ("operations", {"statsu": "failed"}, "'statsu': did you mean status?"),
        ("run-queues", {"serch": "a"}, "'serch': did you mean search?"),
    ],
)
async def test_an_unknown_parameter_is_refused_with_the_most_similar_one(
    client: httpx.AsyncClient, queue: str, path: str, query: dict[str, str], detail: str
) -> None:
    await push(client, 1, queue=queue)
    response = await client.get(f"/api/v1/{path.format(queue=queue)}", params=query)
    assert detail in assert_problem(response, 422, "invalid_request")
    assert response.json()["field"] == next(iter(query))


async def test_routes_of_queen_ignore_unknown_parameters(client: httpx.AsyncClient, queue: str) -> None:
    await push(client, 1, queue=queue)
    for path in ("resources/queues", "status", "analytics/queue-ops", f"pop/queue/{queue}"):
        assert (await client.get(f"/api/v1/{path}", params={"unheard": "of"})).status_code == 200, path


async def test_a_series_reports_its_completeness(
    client: httpx.AsyncClient, shared_settings: Settings, warehouse: Warehouse, queue: str
) -> None:
    await push(client, 1, queue=queue)
    time_s = int(time.time()) - 60
    warehouse.command(
        "INSERT INTO set_aside (metric, reason, stream, at, events, example) VALUES "
        f"('queue', 'trimmed', 's', {time_s}, 7, ''), ('queue', 'not_a_number', 's', {time_s}, 2, ''), "
        f"('queue', 'stream_replaced', 's', {time_s}, 0, ''), "
        f"('queue', 'trimmed', 's', {time_s - 86_400}, 50, ''), "
        f"('another', 'trimmed', 's', {time_s}, 900, '')"
    )
    path = f"/queues/{queue}/metrics"
    requested_s = time.time()
    series = await get(client, path)
    assert {name: series["completeness"][name] for name in ("lost", "rejected", "streams_replaced")} == {
        "lost": 7,
        "rejected": 2,
        "streams_replaced": 1,
    }
    assert requested_s - 1.5 < parse_seconds(series["completeness"]["complete_until"]) < time.time()
    assert [point["complete"] for point in series["timeseries"][-3::2]] == [True, False]
    with Redis.from_url(shared_settings.redis_url) as redis:
        key = QUEUE.stream_keys[0]
        for second in (time_s, time_s + 30):
            redis.xadd(key, {"eq": 1}, id=f"{second * 1000}-0")
        write_positions(redis, {key: Position(f"{time_s * 1000}-0", 1)})
        behind = await get(client, path)
        assert parse_seconds(behind["completeness"]["complete_until"]) == time_s + 29
        ends_s = [parse_seconds(point["timestamp"]) + 5 for point in behind["timeseries"]]
        complete = [end_s <= time_s + 29 and not end_s - 5 <= time_s < end_s for end_s in ends_s]
        assert [p["complete"] for p in behind["timeseries"]] == complete


async def test_a_broker_process_has_a_series(client: httpx.AsyncClient, warehouse: Warehouse) -> None:
    time_s = int(time.time() - 30) // 5 * 5
    warehouse.command(
        f"""INSERT INTO worker_landing
                (hostname, worker, at, events, newest_ms, seen_ms, seen_id, push_requests,
                 parked_pops_max, parked_pops_last, late_ms)
            VALUES ('here', '1', {time_s}, 1, {time_s}000, {time_s}000, {time_s}000, 12, 7, 3, [4, 4, 4])"""
    )
    series = await get(client, "/workers/here/1/metrics", period="5m")
    assert (series["metric"], series["tier"], len(series["timeseries"])) == ("worker", "5s", 60)
    assert sum(point["push_requests"] for point in series["timeseries"]) == 12
    [point] = [point for point in series["timeseries"] if point["push_requests"]]
    assert point["parked_pops"] == {"max": 7, "last": 3}
    assert (point["late_ms"]["count"], point["late_ms"]["p99"]) == (3, 4)
    assert last_point(series)["parked_pops"]["last"] == 3
    other = await get(client, "/workers/elsewhere/0/metrics")
    assert {point["push_requests"] for point in other["timeseries"]} == {0}
    assert_problem(await client.get("/api/v1/workers/here/x/metrics"), 422, "invalid_request")
    assert_problem(await client.get("/api/v1/workers/here/0/metrics?period=1y1"), 422, "invalid_request")
