"""What can be looked at: queues, series, health, the page and the API's own description."""

from __future__ import annotations

import httpx


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
    answer = await client.get("/api/v1/queues/nobody/metrics")
    assert answer.status_code == 404
    assert answer.json()["code"] == "unknown_queue"


async def test_an_unknown_route_says_where_to_look(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/v1/nonsense")
    assert answer.status_code == 404
    assert "/docs" in answer.json()["detail"]


async def test_health_names_every_part(client: httpx.AsyncClient) -> None:
    answer = await client.get("/health")
    parts = answer.json()["parts"]
    assert set(parts) == {"broker", "postgres", "redis", "clickhouse", "pipeline"}
    assert {parts[name]["status"] for name in ("broker", "postgres", "redis", "clickhouse")} == {"up"}
    assert parts["pipeline"]["status"] == "down"
    assert answer.status_code == 503


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


async def test_the_page_is_served(client: httpx.AsyncClient) -> None:
    answer = await client.get("/")
    assert answer.status_code == 200
    assert "<html" in answer.text
