"""The overview in a real browser over a real broker."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from penstock.config import Settings
from penstock.embedded.servers.ports import any_free_port
from tests.browser import assert_accessible, new_page
from tests.deadlines import deadline_s
from tests.integration.api.calls import get, push
from tests.integration.api.http.raw_connections import run_server
from tests.integration.console import console_broker
from tests.integration.console.console_broker import ConsoleBroker
from tests.integration.warehouse.landing_rows import insert_rows, landing_row

pytestmark = pytest.mark.browser
shared_settings = console_broker.shared_settings
console = console_broker.console
page = console_broker.page

README = Path(__file__).parents[3] / "README.md"
TIMEOUT_MS = deadline_s(15) * 1_000


async def test_without_queues_the_page_shows_the_push_command_of_the_readme(
    console: ConsoleBroker, page: Page
) -> None:
    await page.goto(console.url)
    command = await page.locator(".empty .command code").inner_text()
    assert command.startswith(f"curl -X POST {console.url}/api/v1/push")
    assert command.replace(console.url, "http://127.0.0.1:7480") in README.read_text()
    await assert_accessible(page)


async def test_the_page_says_what_is_wrong_where_and_since_when(console: ConsoleBroker, page: Page) -> None:
    now = time.time()
    insert_rows(
        console.warehouse,
        *(landing_row(now - 60 * age, queue="orders <b>", depth=1) for age in (20, 15)),
        landing_row(now - 40, queue="orders <b>", group="g", dead=4),
    )
    await push(console.client, *range(40), queue="orders <b>")
    await page.goto(console.url)
    verdict = page.get_by_role("status").filter(has_text="need")
    await expect(verdict).to_contain_text("need attention", timeout=TIMEOUT_MS)
    growing = page.locator("[data-kind=growing] li")
    await expect(growing).to_contain_text("+39 in 10 minutes, 40 waiting.", timeout=TIMEOUT_MS)
    await expect(growing).to_contain_text("began")
    await expect(page.locator("[data-kind=dead] li")).to_contain_text("4 died in the last hour")
    await expect(page.locator("[data-kind=components] li")).to_contain_text("pipeline")
    await expect(growing.get_by_role("link")).to_have_attribute("href", "/console/queues/orders%20%3Cb%3E")
    await assert_accessible(page)


async def test_figures_change_while_the_page_is_open(console: ConsoleBroker, page: Page) -> None:
    await push(console.client, 1, queue="live")
    await page.goto(console.url)
    waiting = page.locator(".stat", has_text="Waiting").locator("dd").first
    await expect(waiting).to_have_text(re.compile(r"^\d\d?$"), timeout=TIMEOUT_MS)
    await push(console.client, *range(1000), queue="live")
    await expect(waiting).to_have_text(re.compile(r"^1,0\d\d$"), timeout=TIMEOUT_MS)


async def test_while_clickhouse_is_away_the_live_part_works_and_says_so(
    shared_settings: Settings, console: ConsoleBroker, browser: Browser
) -> None:
    await push(console.client, 1, queue="kept")
    url = f"http://127.0.0.1:{any_free_port()}/default"
    settings = shared_settings.model_copy(update={"clickhouse_url": url, "metrics_enabled": False})
    async with run_server(settings) as server, new_page(browser) as page:
        await page.goto(f"http://127.0.0.1:{server.port}/")
        notice = page.locator(".state.unavailable")
        await expect(notice).to_contain_text("Rates, waits and histories are unknown.", timeout=TIMEOUT_MS)
        await expect(notice).to_contain_text("does not answer")
        await expect(page.locator(".stat", has_text="In /s").locator("dd").first).to_have_text("–")
        await expect(page.locator(".stat", has_text="Waiting").locator("dd").first).not_to_have_text("–")
        await expect(page.locator("[data-kind=components] li", has_text="clickhouse")).to_be_visible()
        await page.goto(f"http://127.0.0.1:{server.port}/console/queues?search=kept")
        await expect(page.locator("tbody tr")).to_contain_text("kept")
        await expect(notice).to_be_visible()


@pytest.mark.parametrize("width", [390, 820])
async def test_a_narrow_screen_shows_the_figures_although_much_needs_attention(
    console: ConsoleBroker, page: Page, width: int
) -> None:
    await push(console.client, 1, queue="narrow")
    overview = await get(console.client, "/console/overview")
    item = {"what": "50 waiting.", "since": "2026-01-31T07:30:00.000Z", "severity": "warning", "link": "/"}
    items = [{**item, "where": f"queue-{number}"} for number in range(5)]
    kinds = ("incidents", "components", "oldest", "growing", "dead")
    section = {"total": 5, "link": "/console/queues", "items": items}
    overview["attention"] = [{**section, "kind": kind, "title": kind} for kind in kinds]
    stream = f"event: snapshot\ndata: {json.dumps(overview)}\n\n"
    await page.route(
        "**/api/v1/live**", lambda route: route.fulfill(content_type="text/event-stream", body=stream)
    )
    try:
        await page.set_viewport_size({"width": width, "height": 900})
        await page.goto(console.url)
        await expect(page.locator("[data-kind=dead] li:visible")).to_have_count(2)
        await expect(page.get_by_role("link", name="Show all 5")).to_have_count(5)
        box = await page.locator(".overview-figures").bounding_box()
        assert box is not None
        assert box["y"] < 1.5 * 900
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        await page.set_viewport_size({"width": 1440, "height": 900})
        await expect(page.locator("[data-kind=dead] li:visible")).to_have_count(5)
        await expect(page.get_by_role("link", name="Show all 5")).to_have_count(0)
    finally:
        await page.unroute("**/api/v1/live**")
