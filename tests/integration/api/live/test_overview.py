"""The overview of the console, on real servers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from penstock.api.app import create_app
from penstock.config import Settings
from penstock.durable.pool import Database
from penstock.embedded.servers.ports import any_free_port
from penstock.model import DEFAULT_SCOPE
from penstock.warehouse.clickhouse_client import Warehouse
from tests.integration.api import shared_app
from tests.integration.api.calls import get, push
from tests.integration.warehouse.landing_rows import insert_rows, landing_row
from tests.waiting import wait_until_async

app = shared_app.app
database = shared_app.database


def sections_of(overview: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {section["kind"]: section for section in overview["attention"]}


async def wait_for_sections(client: httpx.AsyncClient, *kinds: str) -> dict[str, Any]:
    """Return the overview once it has these sections."""
    overview: dict[str, Any] = {}

    async def has_sections() -> bool:
        nonlocal overview
        overview = await get(client, "/console/overview")
        return sections_of(overview).keys() >= set(kinds)

    await wait_until_async(has_sections, 20, f"the overview has {kinds}")
    return overview


async def test_the_overview_says_what_is_wrong_where_and_since_when(
    client: httpx.AsyncClient, app: FastAPI, database: Database, warehouse: Warehouse
) -> None:
    now = time.time()
    await push(client, *range(50), queue="slow")
    await database.fetch("UPDATE log SET created_at = now() - interval '2 hours'")
    insert_rows(
        warehouse,
        *(landing_row(now - 60 * age, queue="slow", depth=1) for age in (20, 15)),
        landing_row(now - 40, queue="slow", depth=50, enqueued=60),
        landing_row(now - 40, queue="slow", group="g", dead=4, wait_ms=(250,) * 9),
        landing_row(now - 90, queue="", enqueued=120, env_depth=50, wait_ms=(250,) * 9),
    )
    await database.fetch(
        "INSERT INTO alert_incidents (id, environment_id, rule_id, rule, severity, opened_at) "
        "SELECT gen_random_uuid(), require_environment_v1($1, $2, $3), NULL, "
        '\'{"name": "too old", "type": "age"}\', \'critical\', now() - interval \'10 minutes\'',
        *DEFAULT_SCOPE,
    )
    overview = await wait_for_sections(client, "incidents", "oldest", "growing", "dead")
    sections = sections_of(overview)
    assert overview["attention"][0]["kind"] == "incidents", "incidents come first"
    assert overview["status"] == "critical"
    [incident] = sections["incidents"]["items"]
    assert incident["what"] == "too old"
    assert incident["link"].startswith("/console/alerts?tab=incidents&incident=")
    [oldest] = sections["oldest"]["items"]
    assert (oldest["where"], oldest["link"]) == ("slow", "/console/queues/slow")
    assert oldest["what"] == "50 waiting. No consumer has ever read from it."
    [growing] = sections["growing"]["items"]
    assert growing["what"] == "+49 in 10 minutes, 50 waiting."
    [dead] = sections["dead"]["items"]
    assert dead["what"] == "4 died in the last hour, 0 dead letters now."
    for section in sections.values():
        assert all(item["since"] for item in section["items"]), section
    totals = overview["totals"]
    assert (totals["depth"], totals["durableQueues"], totals["rateIn"]) == (50, 1, 1.0)
    assert len(overview["series"]["depth"]) in (60, 61)
    assert 250.0 in overview["series"]["waitP95Ms"]


@pytest_asyncio.fixture
async def lone_client(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a broker without Redis and ClickHouse."""
    unreachable = settings.model_copy(
        update={
            "clickhouse_url": f"http://127.0.0.1:{any_free_port()}/default",
            "redis_url": f"redis://127.0.0.1:{any_free_port()}/0",
            "metrics_enabled": False,
        }
    )
    application = create_app(unreachable)
    async with (
        application.router.lifespan_context(application),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(application), base_url="http://localhost"
        ) as http_client,
    ):
        yield http_client


@pytest.mark.timeout(60)
async def test_without_clickhouse_and_redis_the_live_part_works_and_says_so(
    lone_client: httpx.AsyncClient,
) -> None:
    body = {"items": [{"queue": "orders", "payload": 1}]}
    assert (await lone_client.post("/api/v1/push", json=body)).status_code == 201
    overview = await wait_for_sections(lone_client, "components")
    assert overview["metricsAvailable"] is False
    assert overview["metricsProblem"]
    assert overview["series"] is None
    assert overview["totals"]["depth"] == 1
    assert overview["totals"]["rateIn"] is None
    assert [problem["component"] for problem in overview["problems"]] == ["redis"]
    components = {item["where"]: item for item in sections_of(overview)["components"]["items"]}
    assert components.keys() >= {"redis", "clickhouse"}
    assert all(item["since"] for item in components.values())
    page = await get(lone_client, "/console/queues")
    [entry] = page["queues"]
    assert (entry["depth"], entry["rateIn"], entry["depthHistory"]) == (1, None, None)
    assert page["metricsAvailable"] is False
