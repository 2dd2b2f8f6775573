"""The view of one queue in a real browser: its failures and its dead letters, with faked responses."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.integration.console.fake_api import ORIGIN, FakeApi, metrics_response
from tests.integration.console.test_page import HAS_COLOR

pytestmark = pytest.mark.browser

RETRIED_LIGHT, DEAD_LIGHT = [0xB8, 0x6E, 0x00], [0xC0, 0x30, 0x2B]


async def test_each_kind_of_failure_has_a_total_and_a_chart_line(page: Page, api: FakeApi) -> None:
    api.queues = ["orders", "orders-eu"]
    response = metrics_response([(1, False)] * 6)
    for point in response["timeseries"]:
        point["failures"] = {"nack": 1, "dlq": 2, "ttl_expired": 3}
    api.metrics = 200, response
    await page.goto(f"{ORIGIN}/?period=5m")
    card = page.locator("article[data-queue=orders]")
    await expect(card.locator("dd a")).to_have_text(["6", "12", "18"])

    await card.locator(".retried a").click()
    await expect(page).to_have_url(f"{ORIGIN}/?queue=orders&series=retried&period=5m")
    await expect(page.locator("article h2")).to_have_text(["orders"])
    failed = page.locator("figure", has_text="Failed /min")
    await expect(failed.locator(".legend a")).to_have_text(["retried 12.0", "dead 24.0", "expired 36.0"])
    await expect(failed.locator("[aria-current]")).to_have_text("retried 12.0")
    assert await failed.locator("canvas").evaluate(HAS_COLOR, RETRIED_LIGHT)
    assert not await failed.locator("canvas").evaluate(HAS_COLOR, DEAD_LIGHT)

    await failed.locator("[aria-current]").click()
    await expect(page).to_have_url(f"{ORIGIN}/?queue=orders&period=5m")
    await expect(failed.locator(".legend a")).to_have_text(["retried 12.0", "dead 24.0", "expired 36.0"])
    assert await failed.locator("canvas").evaluate(HAS_COLOR, DEAD_LIGHT)

    await page.locator("#all-queues").click()
    await expect(page.locator("article h2")).to_have_text(["orders", "orders-eu"])


async def test_the_number_of_dead_letters_links_to_their_errors(page: Page, api: FakeApi) -> None:
    api.queues = ["my orders"]
    group = {
        "errorGroup": "02758eb7-1917-6d2e-f82b-19c8dcfb2873",
        "error": "Card <declined>",
        "deadLetters": 3,
        "consumerGroups": ["billing", "__QUEUE_MODE__"],
        "lastFailedAt": "2026-01-01T00:00:00.000Z",
    }
    api.error_groups = 200, {"groups": [group], "complete": True, "pagination": {"total": 1}}
    await page.goto(ORIGIN)
    await page.locator("article .dead a").click()

    section = page.locator("#dead-letters")
    await expect(section.locator(".summary")).to_have_text("Now 3, with 1 different error.")
    await expect(section).to_be_in_viewport()
    await expect(section.locator("td").nth(0)).to_have_text("Card <declined>")
    await expect(section.locator("td").nth(2)).to_have_text("billing, (no group)")
    link = await section.locator("td a").get_attribute("href")
    assert link == f"/api/v1/dlq?queue=my+orders&errorGroup={group['errorGroup']}"
    await expect(section.locator("code")).to_contain_text("penstock dlq ls --queue 'my orders'")


async def test_without_the_right_to_read_dead_letters_the_section_says_so(page: Page, api: FakeApi) -> None:
    api.queues = ["orders"]
    api.error_groups = 401, {"detail": "Send the token."}
    await page.goto(f"{ORIGIN}/?queue=orders")

    await expect(page.locator("#dead-letters .summary")).to_have_text("Send the token.")
    await expect(page.locator("#dead-letters table")).to_be_hidden()
    await expect(page.locator("article .in dd")).to_have_text("2.0")


async def test_the_view_of_an_unknown_queue_says_that_it_does_not_exist(page: Page, api: FakeApi) -> None:
    api.queues = ["orders"]
    await page.goto(f"{ORIGIN}/?queue=order")

    await expect(page.locator("main")).to_contain_text("Queue “order” does not exist.")
