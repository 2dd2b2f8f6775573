"""A walk through every page of the console on a running platform, in a real browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, ViewportSize, expect

from tests.browser import assert_accessible, launch_browser
from tests.deadlines import deadline_s
from tests.e2e.console_pages import CONSOLE_PAGES, ConsolePage, open_page, take_picture
from tests.e2e.console_shop import Shop, demo_load, open_shop
from tests.integration.console.real_console import open_console
from tests.whole_platform import RunningPlatform

ARTIFACTS = Path(__file__).parents[2] / "artifacts" / "console"
PHONE = ViewportSize(width=390, height=844)

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def shop(platform: RunningPlatform) -> Iterator[Shop]:
    with demo_load(platform):
        yield open_shop(platform, "shop")


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with launch_browser() as browser:
        yield browser


@pytest.fixture
async def page(browser: Browser, shop: Shop) -> AsyncIterator[Page]:
    async with open_console(browser, shop.url, "/") as page:
        yield page


@pytest.mark.parametrize("console_page", CONSOLE_PAGES, ids=lambda page: page.name)
async def test_page_is_complete_accessible_and_fits_a_phone(
    page: Page, shop: Shop, console_page: ConsolePage
) -> None:
    await open_page(page, shop, console_page)
    await assert_accessible(page)
    await take_picture(page, ARTIFACTS / f"{console_page.name}.png")

    await page.emulate_media(color_scheme="dark")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await assert_accessible(page)
    await take_picture(page, ARTIFACTS / f"{console_page.name}-dark.png")

    await page.set_viewport_size(PHONE)
    assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    await take_picture(page, ARTIFACTS / f"{console_page.name}-phone.png")


async def test_the_keyboard_reaches_every_page_of_the_menu(page: Page) -> None:
    links = page.locator("nav a[title^='Keys: ']")
    await expect(links).to_have_count(9)
    for link in await links.all():
        keys = str(await link.get_attribute("title")).removeprefix("Keys: ")
        for key in keys.split():
            await page.keyboard.press(key)
        await expect(link).to_have_attribute("aria-current", "page")
        await expect(page.get_by_role("heading", level=1)).to_have_text(await link.inner_text())


async def test_a_dead_message_leads_back_to_its_queue(page: Page, shop: Shop) -> None:
    """From the list of errors to one message, its life, and the charts of its queue at that time."""
    await page.goto(f"{shop.url}/console/dead-letters?queue={shop.invoices}")
    await page.get_by_role("link", name="declined").first.click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("declined")
    await page.goto(f"{shop.url}/console/messages/{shop.message_id}")
    life = page.locator(".time-line")
    await expect(life).to_contain_text("Pushed")
    await expect(life).to_contain_text("declined")
    await page.get_by_role("link", name=shop.invoices).first.click()
    await expect(page).to_have_url(f"{shop.url}/console/queues/{shop.invoices}")
    await asyncio.wait_for(expect(page.locator(".answers")).to_be_visible(), deadline_s(30))
