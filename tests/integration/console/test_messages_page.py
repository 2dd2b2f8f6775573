"""The search of messages and the page of a message, in a real browser over a real broker."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Page, Route, expect

from tests.browser import assert_accessible
from tests.integration.api.calls import ack, configure, pop, push
from tests.integration.console import console_broker
from tests.integration.console.console_broker import ConsoleBroker

pytestmark = pytest.mark.browser
shared_settings = console_broker.shared_settings
console = console_broker.console
page = console_broker.page


@pytest_asyncio.fixture
async def client(console: ConsoleBroker) -> httpx.AsyncClient:
    return console.client


COUNT_FILLED_PIXELS = """() => {
  const canvas = document.querySelector(".plot canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return data.filter((alpha, i) => i % 4 === 3 && alpha > 0 && alpha < 80).length;
}"""
"""Pixels that the translucent area below a line covers, in the first chart."""


async def open_path(page: Page, console: ConsoleBroker, path: str) -> None:
    await page.goto(f"{console.url}{path}")


def query_of(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


async def fail_message(client: httpx.AsyncClient, queue: str, *errors: str) -> dict[str, Any]:
    """Push a message and fail it once per error; return it as it was popped last."""
    await configure(client, queue, retryLimit=len(errors) - 1)
    await push(client, {"orderId": 42, "city": "Bern"}, queue=queue)
    message: dict[str, Any] = {}
    for error in errors:
        [message] = await pop(client, queue)
        await ack(client, message, "failed", error=error)
    return message


async def test_a_search_shows_its_results_and_is_in_the_url(
    page: Page, console: ConsoleBroker, client: httpx.AsyncClient
) -> None:
    await configure(client, "invoices", indexKeys=["$.orderId"])
    await push(client, {"orderId": 1, "city": "Bern"}, {"orderId": 2, "city": "Basel"}, queue="invoices")
    await open_path(page, console, "/console/messages")
    await expect(page.get_by_text("Enter what you know of the message.")).to_be_visible()
    await page.get_by_label("Queue").fill("invoices")
    await page.get_by_label("Text in the payload").fill("bern")
    await page.get_by_role("button", name="Search").click()
    rows = page.get_by_role("table", name="Messages that match").locator("tbody tr")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text('"city":"Bern"')
    await expect(page.get_by_text("2 of 2 looked at, 1 message")).to_be_visible()
    assert query_of(page) == {"queue": ["invoices"], "text": ["bern"]}

    await page.get_by_label("Text in the payload").fill("")
    await page.get_by_label("Index key").select_option("$.orderId")
    await page.get_by_label("Value of the key").fill("2")
    await page.get_by_role("button", name="Search").click()
    await expect(rows).to_contain_text('"city":"Basel"')
    await expect(page.get_by_text("The key is indexed for messages pushed since")).to_be_visible()
    await page.reload()
    await expect(rows).to_contain_text('"city":"Basel"')
    await assert_accessible(page)
    await page.go_back()
    await expect(rows).to_contain_text('"city":"Bern"')


async def test_a_search_is_cancelled_and_continued(
    page: Page, console: ConsoleBroker, client: httpx.AsyncClient
) -> None:
    await push(client, *range(60), queue="long")
    calls: list[str] = []

    async def hold(route: Route) -> None:
        """Let the first step through, and never answer the second."""
        calls.append(route.request.url)
        if len(calls) != 2:
            await route.continue_()

    await page.route("**/api/v1/messages/search*", hold)
    await open_path(page, console, "/console/messages?queue=long")
    await page.get_by_role("button", name="Show more").click()
    async with page.expect_event("requestfailed"):
        await page.get_by_role("button", name="Cancel").click()
    await expect(page.get_by_text("(cancelled)")).to_be_visible()
    await page.get_by_role("button", name="Continue").click()
    await expect(page.get_by_text("60 of 60 looked at, 60 messages")).to_be_visible()
    assert "cursor=" in calls[2]
    await page.unroute("**/api/v1/messages/search*")


async def test_payloads_are_withheld_without_the_right_to_them(
    page: Page, console: ConsoleBroker, client: httpx.AsyncClient
) -> None:
    async def answer(route: Route) -> None:
        response = await route.fetch()
        body = await response.json()
        await route.fulfill(response=response, json=body | {"scopes": ["read"]})

    [result] = await push(client, {"card": 42}, queue="private")
    await page.route("**/api/v1/session", answer)
    await open_path(page, console, "/console/messages?queue=private")
    await expect(page.get_by_label("Queue")).to_be_visible()
    await expect(page.get_by_label("Text in the payload")).to_have_count(0)
    await open_path(page, console, f"/console/messages/{result['message_id']}")
    await expect(page.get_by_role("heading", name="Life")).to_be_visible()
    await expect(page.get_by_role("button", name="Delete")).to_have_count(0)
    await page.unroute("**/api/v1/session")


async def test_the_life_of_a_message_is_shown_and_it_is_requeued(
    page: Page, console: ConsoleBroker, client: httpx.AsyncClient
) -> None:
    message = await fail_message(client, "shipments", "no stock", "still no stock")
    console.insert_metrics("shipments", minutes=5, depth=3)
    await open_path(page, console, f"/console/messages/{message['id']}?queue=shipments")
    events = page.locator(".time-line li")
    await expect(events.locator("b")).to_have_text(["Pushed", "Delivered", "Failed", "Dead after 2 attempts"])
    await expect(events.nth(2)).to_contain_text("no stock")
    await expect(page.get_by_role("region", name="Payload")).to_contain_text('"city": "Bern"')
    await expect(page.locator(".plot.drawn")).to_have_count(3)
    assert await page.evaluate(COUNT_FILLED_PIXELS) > 1_000, "the depth is drawn as an area"
    await expect(page.locator(".marks").first.locator("> *")).not_to_have_count(0)
    await assert_accessible(page)
    await page.get_by_role("button", name="Requeue").click()
    await expect(events.locator("b")).to_have_text(["Pushed", "Pushed by a requeue, after one death"])
    await page.get_by_role("link", name="The first message").click()
    await expect(events.last.locator("b")).to_have_text("Requeued")
    await page.get_by_role("link", name="The new message").click()
    await page.get_by_role("button", name="Clone and edit").click()
    await page.get_by_label("Payload (JSON)").fill('{"orderId": 43}')
    await page.get_by_role("button", name="Push").click()
    await expect(page.get_by_text("Pushed as")).to_be_visible()
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("heading", name="Messages")).to_be_visible()
    assert [message["data"] for message in await pop(client, "shipments")] == [{"orderId": 43}]


async def test_an_unknown_id_says_so(page: Page, console: ConsoleBroker) -> None:
    await open_path(page, console, "/console/messages/00000000-0000-7000-8000-000000000000")
    await expect(page.get_by_text("No message or task has this id.")).to_be_visible()
