"""The list of queues in a real browser over a real broker."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from penstock.config import Settings
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from tests.browser import assert_accessible
from tests.deadlines import deadline_s
from tests.integration.api.calls import push
from tests.integration.console import console_broker
from tests.integration.console.console_broker import ConsoleBroker

pytestmark = pytest.mark.browser
shared_settings = console_broker.shared_settings
console = console_broker.console
page = console_broker.page

TIMEOUT_MS = deadline_s(15) * 1_000


async def test_both_kinds_are_sorted_searched_and_filtered_by_the_url(
    console: ConsoleBroker, page: Page
) -> None:
    client = console.client
    for number, name in enumerate(("both-b", "both-a", "both-c"), start=1):
        await push(client, *range(number), queue=name)
    await push(client, 1, queue="another")
    await client.post("/api/v1/resources/queues/both-c/pause")
    await client.post("/api/v1/run-queues/both-run/tasks", json={"tasks": [{"payload": 1}] * 9})
    names = page.locator("tbody .queue-name")

    await page.goto(f"{console.url}/console/queues")
    await expect(names.first).to_have_text("another", timeout=TIMEOUT_MS)
    await page.keyboard.press("/")
    await page.keyboard.type("both-")
    await expect(names).to_have_text(["both-a", "both-b", "both-c", "both-run"], timeout=TIMEOUT_MS)
    await page.get_by_role("button", name="Depth", exact=True).click()
    await expect(names).to_have_text(["both-run", "both-c", "both-a", "both-b"])
    await expect(page).to_have_url(re.compile(r"\?search=both-&sort=depth&order=desc$"))
    await page.reload()
    await expect(names).to_have_text(["both-run", "both-c", "both-a", "both-b"])
    await expect(page.locator("tr", has_text="both-c").locator(".badge")).to_have_text("Paused")
    await assert_accessible(page)

    await page.get_by_label("Kind").select_option("durable")
    await expect(names).to_have_text(["both-c", "both-a", "both-b"])
    await page.get_by_label("Problem").select_option("paused")
    await expect(names).to_have_text(["both-c"])
    await page.get_by_label("Search queues by name").fill("both-x")
    await expect(page.get_by_text("No queue has “both-x” in its name")).to_be_visible()


async def test_a_row_shows_the_figures_and_leads_to_the_queue(console: ConsoleBroker, page: Page) -> None:
    await push(console.client, 1, 2, queue="figures<b>")
    console.insert_metrics("figures<b>", minutes=10, depth=3)
    await page.goto(f"{console.url}/console/queues?search=figures")
    row = page.locator("tbody tr")
    await expect(row.locator("td").nth(3)).to_have_text("2", timeout=TIMEOUT_MS)
    await expect(row.locator("td").nth(4)).to_have_text("40 ms")
    await expect(row.locator("svg polyline")).to_have_count(1)
    await expect(row.locator(".badge")).to_have_text("No consumers")
    await expect(row.get_by_role("link")).to_have_attribute("href", "/console/queues/figures%3Cb%3E")
    await push(console.client, 3, queue="figures<b>")
    await expect(row.locator("td").nth(3)).to_have_text("3", timeout=TIMEOUT_MS)


async def test_of_a_hundred_cards_only_those_near_the_screen_have_charts(
    console: ConsoleBroker, page: Page
) -> None:
    items = [{"queue": f"card-{number:03}", "payload": 1} for number in range(100)]
    assert (await console.client.post("/api/v1/push", json={"items": items})).status_code == 201
    requested: set[str] = set()
    page.on("request", lambda request: requested.add(request.url) if "/metrics" in request.url else None)
    await page.goto(f"{console.url}/console/queues?search=card-&view=charts&period=5m")
    cards = page.locator("article")
    await expect(cards).to_have_count(100, timeout=TIMEOUT_MS)
    await expect(cards.first.locator(".plot.drawn")).to_have_count(3, timeout=TIMEOUT_MS)
    assert 0 < len(requested) < 15

    await cards.last.scroll_into_view_if_needed()
    await expect(cards.last.locator(".plot.drawn")).to_have_count(3, timeout=TIMEOUT_MS)
    await expect(cards.first.locator("canvas")).to_have_count(0)

    await page.get_by_label("Search queues by name").fill("card-000")
    await expect(cards).to_have_count(1)
    await assert_accessible(page)


async def test_ten_thousand_queues_are_shown_in_pages(
    console: ConsoleBroker, page: Page, shared_settings: Settings
) -> None:
    database = Database(shared_settings.postgres_url, 1)
    await database.fetch(
        "INSERT INTO queues (environment_id, name) "
        "SELECT require_environment_v1($1, $2, $3), 'many-' || to_char(n, 'FM00000') "
        "FROM generate_series(1, 10000) n",
        *DEFAULT_SCOPE,
    )
    await database.close()
    await page.goto(f"{console.url}/console/queues?search=many-&page=200")
    rows = page.locator("tbody tr")
    await expect(rows.last).to_contain_text("many-10000", timeout=TIMEOUT_MS)
    await expect(rows).to_have_count(50)
    await expect(page.locator(".pager")).to_contain_text("page 200 of 200")
    await page.get_by_role("button", name="Previous").click()
    await expect(rows.last).to_contain_text("many-09950")
    await page.go_back()
    await expect(rows.last).to_contain_text("many-10000")
