"""The pages Workers, Operations and Pipeline in a real browser over a real broker."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect
from redis import Redis

from penstock.config import Settings
from penstock.streams.batch_history import add_batches
from penstock.streams.progress import write_progress
from penstock.warehouse.clickhouse_client import connect
from penstock.warehouse.schema import SET_ASIDE_TABLE
from tests.browser import assert_accessible, new_page, report_policy_violations
from tests.deadlines import deadline_s
from tests.integration.api.calls import app_services, push
from tests.integration.api.conftest import shared_settings as base_settings
from tests.integration.api.http.raw_connections import RunningServer, run_server
from tests.integration.api.pipeline_reports import batch, report
from tests.integration.api.routes.test_series_routes import warehouse_url
from tests.integration.console.fake_api import LOCAL_SESSION

__all__ = ["base_settings", "warehouse_url"]
pytestmark = pytest.mark.browser

MEMORY = re.compile(r"\d [MG]B")


@pytest_asyncio.fixture(scope="module")
async def server(shared_settings: Settings, warehouse_url: str) -> AsyncIterator[RunningServer]:
    """A broker whose lanes wait for an operator after the first failure."""
    settings = shared_settings.model_copy(
        update={
            "clickhouse_url": warehouse_url,
            "load_management": True,
            "load_wait_s": 60.0,  # a slow machine must not make the broker busy
            "operation_attempts": 1,
            "failed_operation": "hold",
        }
    )
    async with run_server(settings) as running_server:
        yield running_server


shared_settings = base_settings


@pytest_asyncio.fixture(scope="module")
async def page(browser: Browser) -> AsyncIterator[Page]:
    async with new_page(browser) as page:
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        report_policy_violations(page, errors)
        yield page
        assert errors == []


@pytest_asyncio.fixture
async def client(server: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{server.port}", timeout=deadline_s(30)
    ) as client:
        yield client


async def open_page(page: Page, server: RunningServer, path: str) -> None:
    await page.goto(f"http://127.0.0.1:{server.port}/console/{path}")
    await expect(page.get_by_role("heading", level=1)).to_be_visible()


def section(page: Page, title: str) -> Locator:
    return page.locator("section").filter(has=page.get_by_role("heading", name=title, exact=True))


async def test_workers_shows_processes_batches_and_history(
    page: Page, server: RunningServer, client: httpx.AsyncClient
) -> None:
    await push(client, *range(5), queue="measured")
    worker_metrics = app_services(server.app).worker_metrics
    worker_metrics.sample()
    await worker_metrics.write_minutes()
    await open_page(page, server, "workers")
    row = section(page, "Now").get_by_role("row").nth(1)
    await expect(row).to_contain_text("calm")
    await expect(row).to_contain_text(MEMORY)
    await expect(row.locator("svg.sparkline").first).to_be_visible()
    await expect(section(page, "Batches since the start").get_by_role("row", name="push")).to_contain_text(
        "5.0"
    )
    history = section(page, "History of all processes")
    await expect(history.locator("figure.chart")).to_have_count(6)
    await expect(history.locator("figure.chart", has_text="Memory")).to_contain_text(MEMORY)
    await assert_accessible(page)
    await row.get_by_role("link").click()
    await expect(page.get_by_role("heading", name="History of worker 0 on")).to_be_visible()
    assert "process=" in page.url
    await page.get_by_role("button", name="Show all processes").click()
    await expect(history).to_be_visible()


async def test_operations_says_what_happens_to_requests_and_why(page: Page, server: RunningServer) -> None:
    await open_page(page, server, "operations")
    load = section(page, "Load decision")
    await expect(load.get_by_role("row", name="push")).to_contain_text("the load is below its threshold")
    await expect(section(page, "Journal")).to_contain_text("empty: pushes go to PostgreSQL")
    await expect(section(page, "Lanes")).to_contain_text("No operation waits")
    await expect(section(page, "Vacuum horizon")).to_contain_text("Nothing has held back vacuum")
    await expect(section(page, "Reconciliation")).not_to_contain_text("Loading")
    await assert_accessible(page)
    monitor = app_services(server.app).broker.load
    await monitor.stop()
    monitor._kinds["push"].is_busy = monitor._kinds["pop"].is_busy = True
    await expect(load.get_by_role("row", name="push")).to_contain_text("Deferred")
    await expect(load.get_by_role("row", name="pop")).to_contain_text("Refused")
    monitor._kinds["push"].is_busy = monitor._kinds["pop"].is_busy = False
    await expect(load.get_by_role("row", name="pop")).to_contain_text("calm")


async def test_a_blocked_lane_is_released_and_a_waiting_operation_cancelled(
    page: Page, server: RunningServer, client: httpx.AsyncClient
) -> None:
    broker = app_services(server.app).broker
    await broker.drain.stop()
    await broker.load.stop()
    await push(client, "takes all the room", queue="small")
    broker.load._kinds["push"].is_busy = True
    for payload in ("poison", "fine"):
        body = {"items": [{"queue": "small", "payload": payload}]}
        assert (await client.post("/api/v1/push", json=body)).status_code == 202
    broker.load._kinds["push"].is_busy = False
    await client.post("/api/v1/configure", json={"queue": "small", "options": {"maxSize": 1}})
    await open_page(page, server, "operations?status=pending")
    operations = section(page, "Deferred operations")
    await expect(operations.get_by_role("row")).to_have_count(3)
    await expect(section(page, "Lanes").get_by_role("row", name="small")).to_contain_text("waiting")
    await operations.get_by_role("button", name="Cancel").last.click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Its messages are lost")
    await assert_accessible(page)
    await dialog.get_by_role("button", name="Cancel the operation").click()
    await expect(operations.get_by_role("row")).to_have_count(2)
    await broker.drain.start()
    lane = section(page, "Lanes").get_by_role("row", name="small")
    await expect(lane).to_contain_text("blocked")
    await expect(lane).to_contain_text("full")
    await operations.get_by_label("Status").select_option("failed")
    await expect(operations.get_by_role("row", name="small")).to_contain_text("failed")
    assert "status=failed" in page.url
    await client.post("/api/v1/configure", json={"queue": "small", "options": {"maxSize": 0}})
    await lane.get_by_role("button", name="Retry").click()
    await expect(page.locator(".toast").last).to_contain_text("executed again")
    await expect(section(page, "Lanes")).to_contain_text("No operation waits")


async def test_pipeline_shows_batches_streams_losses_and_tasks(
    page: Page, server: RunningServer, shared_settings: Settings, warehouse_url: str
) -> None:
    await open_page(page, server, "pipeline")
    await expect(page.get_by_role("alert")).to_contain_text("has not reported yet")
    await expect(section(page, "Spark")).to_contain_text("Spark does not run")
    await expect(section(page, "Events that are not counted")).to_contain_text("is counted")
    warehouse = connect(warehouse_url)
    warehouse.command(
        f"INSERT INTO {SET_ASIDE_TABLE} (metric, reason, stream, at, began_at, events, example) VALUES "
        f"('queue', 'not_a_number', 'stream', {int(time.time())}, {int(time.time())}, 1, 'eq=many')"
    )
    warehouse.close()
    with Redis.from_url(shared_settings.redis_url) as redis:
        add_batches(redis, "queue", [batch(number) for number in range(30)])
        write_progress(redis, report(at=time.time() + 600))  # it stays recent on a slow machine
    await expect(page.get_by_role("alert")).to_be_hidden()
    metric = section(page, "Metric queue")
    await expect(metric).to_contain_text("p50 40 ms")
    await expect(metric.get_by_role("list", name="Average parts of a batch")).to_contain_text("insert 10 ms")
    box = await metric.locator(".batch-plot svg").bounding_box()
    assert box is not None
    await metric.locator(".batch-plot svg").hover(position={"x": box["width"] - 2, "y": 5})
    await expect(metric).to_contain_text("batch 29")
    await expect(section(page, "Metric worker")).to_contain_text("No batch yet")
    await expect(section(page, "Spark")).to_contain_text("1 of 2 tasks, 1 running")
    await page.keyboard.press("r")
    await expect(section(page, "Events that are not counted")).to_contain_text("eq=many")
    await assert_accessible(page)


async def test_users_without_rights_to_the_platform_see_why_pages_are_empty(
    page: Page, server: RunningServer
) -> None:
    session = LOCAL_SESSION | {"subject": "user:1", "scopes": ["read"], "platformAdministrator": False}
    await page.route("**/api/v1/session", lambda route: route.fulfill(json=session))
    for path in ("workers", "pipeline"):
        await open_page(page, server, path)
        await expect(page.locator("main")).to_contain_text("Only platform administrators see")
    await open_page(page, server, "operations")
    await expect(section(page, "Load decision").get_by_role("row", name="push")).to_be_visible()
    await expect(section(page, "Deferred operations").get_by_role("row")).not_to_have_count(0)
    await expect(section(page, "Deferred operations").get_by_role("button")).to_have_count(0)
    await expect(section(page, "Vacuum horizon")).to_be_hidden()
    await page.unroute("**/api/v1/session")
