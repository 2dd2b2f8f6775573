"""The dashboard in a real browser, on the real platform."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser import open_page
from tests.waiting import wait_until, wait_until_async
from tests.whole_platform import Platform

ARTIFACTS = Path(__file__).parents[2] / "artifacts"
PATIENCE_S = 60
PATIENCE_MS = PATIENCE_S * 1_000

pytestmark = pytest.mark.browser

# Counts the painted pixels of a canvas in one colour, which a chart without data does not have.
COUNT_PIXELS = """
(canvas, [red, green, blue]) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const wanted = [red, green, blue, 255];
  let painted = 0;
  for (let i = 0; i < data.length; i += 4) {
    if (wanted.every((part, k) => Math.abs(data[i + k] - part) < 24)) painted++;
  }
  return painted;
}
"""
ENQUEUED_LIGHT = [0x2F, 0x6F, 0xD0]


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    """A page that fails its test when the browser's console shows an error."""
    async with open_page() as page:
        complaints: list[str] = []
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page
    assert complaints == []


async def test_a_pushed_message_is_drawn(platform: Platform, queue: str, page: Page) -> None:
    platform.push(queue, *range(20))
    await page.goto(f"{platform.url}/?search={queue}&period=5m")
    card = page.locator(f"article[data-queue={queue}]")

    await expect(card).to_have_attribute("data-pushed", "20", timeout=PATIENCE_MS)
    await expect(card).to_have_attribute("data-highest-depth", "20", timeout=PATIENCE_MS)
    await expect(card.locator(".depth dd")).to_have_text("20")

    async def throughput_is_painted() -> bool:
        painted: int = await card.locator("canvas").nth(1).evaluate(COUNT_PIXELS, ENQUEUED_LIGHT)
        return painted > 20

    await wait_until_async(throughput_is_painted, PATIENCE_S, "the pushes are drawn")
    ARTIFACTS.mkdir(exist_ok=True)
    await page.screenshot(path=ARTIFACTS / "dashboard.png")


async def test_a_run_queue_stands_beside_the_others(platform: Platform, queue: str, page: Page) -> None:
    platform.push(f"{queue}-b", 1)
    platform.enqueue(f"{queue}-a", 1, 2, 3, limit=5)
    await page.goto(f"{platform.url}/?search={queue}&period=5m")

    await expect(page.locator("article h2")).to_have_text([f"{queue}-a", f"{queue}-b"])
    await expect(page.locator("article .about")).to_have_text(["run queue, 0 of 5 running", "1 partition"])
    card = page.locator(f"article[data-queue={queue}-a]")
    await expect(card).to_have_attribute("data-highest-depth", "3", timeout=PATIENCE_MS)
    await expect(card.locator(".depth dd")).to_have_text("3")


async def test_the_cursor_tells_time_and_values_on_every_chart(
    platform: Platform, queue: str, page: Page
) -> None:
    platform.push(queue, 1)
    wait_until(lambda: platform.counted(queue, "enqueued") == 1, PATIENCE_S, "the push is counted")
    await page.goto(f"{platform.url}/?search={queue}&period=5m")
    charts = page.locator(f"article[data-queue={queue}] .charts")
    await expect(charts.locator(".plot.drawn")).to_have_count(3, timeout=PATIENCE_MS)

    await charts.focus()
    await page.keyboard.press("ArrowLeft")

    times = await charts.locator(".flag").all_inner_texts()
    assert len(times) == 3
    assert len(set(times)) == 1
    assert re.fullmatch(r"\d\d:\d\d:\d\d", times[0])


async def test_the_search_finds_a_queue_and_says_when_there_is_none(
    platform: Platform, queue: str, page: Page
) -> None:
    platform.push(queue, 1)
    await page.goto(platform.url)
    await page.keyboard.press("/")
    await page.keyboard.type(queue)
    await expect(page.locator("article h2")).to_have_text([queue])

    await page.keyboard.type("-not")
    await expect(page.get_by_text(f"No queue has “{queue}-not” in its name.")).to_be_visible()


async def test_the_page_shows_the_health_of_every_part(platform: Platform, page: Page) -> None:
    await page.goto(platform.url)

    parts = page.locator("#parts li.up")
    await expect(parts.filter(has_text="postgres")).to_have_count(1)
    await expect(parts.filter(has_text="pipeline")).to_have_count(1)
    await expect(page.locator("#parts li.down")).to_have_count(0)
