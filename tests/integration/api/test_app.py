"""The application as a whole: queue list, unknown routes, health, OpenAPI document and console page."""

from __future__ import annotations

import asyncpg
import httpx

from penstock.console import GUIDE
from tests.waiting import wait_until_async


async def test_queues_are_listed_with_their_depth(client: httpx.AsyncClient) -> None:
    items = [{"queue": f"list.{name}", "payload": 1} for name in ("a", "b", "a")]
    await client.post("/api/v1/push", json={"items": items})
    body = (await client.get("/api/v1/resources/queues", params={"search": "LIST."})).json()
    assert [(q["name"], q["depth"], q["namespace"], q["task"]) for q in body["queues"]] == [
        ("list.a", 2, "list", "a"),
        ("list.b", 1, "list", "b"),
    ]
    assert body["total"] == 2


async def test_metrics_of_an_unknown_queue_are_404(client: httpx.AsyncClient) -> None:
    response = await client.get("/api/v1/queues/unknown/metrics")
    assert response.status_code == 404
    assert response.json()["code"] == "unknown_queue"


async def test_an_unknown_route_refers_to_the_docs(client: httpx.AsyncClient) -> None:
    response = await client.get("/api/v1/nonsense")
    assert response.status_code == 404
    assert "/docs" in response.json()["detail"]


async def test_health_lists_every_component(client: httpx.AsyncClient) -> None:
    response = await client.get("/health")
    parts = response.json()["parts"]
    assert set(parts) == {"broker", "postgres", "redis", "clickhouse", "pipeline"}
    assert {parts[name]["status"] for name in ("broker", "postgres", "redis", "clickhouse")} == {"up"}
    assert parts["pipeline"]["status"] == "down"
    assert (response.status_code, response.json()["status"]) == (200, "degraded")
    [reason] = response.json()["reasons"]
    assert reason == (
        "pipeline is down: The pipeline has not reported yet. Start it with `penstock up`. "
        "Queues work; charts show no new data, and metric events wait in Redis."
    )


async def test_health_names_a_missing_schema(client: httpx.AsyncClient, database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute("ALTER SCHEMA penstock RENAME TO moved")
    reason = (
        "postgres is down: the tables or functions of Penstock are missing or outdated. "
        "Messages cannot be taken: run `penstock migrate`."
    )
    response = await client.get("/health")
    assert (response.status_code, response.json()["status"]) == (503, "down")
    assert reason in response.json()["reasons"]
    response = await client.get("/health/ready")
    assert (response.status_code, response.json()["reasons"]) == (503, [reason])
    await connection.execute("ALTER SCHEMA moved RENAME TO penstock")
    await connection.close()

    async def is_ready() -> bool:
        return (await client.get("/health/ready")).status_code == 200

    await wait_until_async(is_ready, 10, "the broker is ready after the migration")


async def test_openapi_describes_the_hot_routes_too(client: httpx.AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    assert {
        "/api/v1/push",
        "/api/v1/pop/queue/{queue}",
        "/api/v1/ack",
        "/api/v1/queues/{queue}/metrics",
    } <= set(paths)
    page = await client.get("/docs")
    assert page.status_code == 200
    assert "://" not in page.text, "the page must work offline"


async def test_the_console_page_is_served(client: httpx.AsyncClient) -> None:
    response = await client.get("/")
    assert response.status_code == 200
    assert "<html" in response.text
    icon = await client.get("/favicon.ico")
    assert (icon.status_code, icon.headers["content-type"]) == (200, "image/svg+xml")


async def test_the_guide_has_a_page_below_the_one_of_the_api(client: httpx.AsyncClient) -> None:
    redirect = await client.get("/docs/guide")
    assert (redirect.status_code, redirect.headers["location"]) == (307, "/docs/guide/")
    response = await client.get("/docs/guide/")
    assert (response.status_code == 200) is (GUIDE / "index.html").is_file()
    assert "guide" in response.text
