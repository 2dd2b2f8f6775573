"""The dashboard in a real browser, on a real platform."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser import open_page
from tests.deadlines import deadline_s
from tests.waiting import wait_until, wait_until_async
from tests.whole_platform import RunningPlatform

ARTIFACTS = Path(__file__).parents[2] / "artifacts"
TIMEOUT_S = 60
TIMEOUT_MS = deadline_s(TIMEOUT_S) * 1_000

POINTS_OF_PERIODS = {"5m": 60, "30m": 360, "2h": 120, "24h": 1440, "7d": 168, "30d": 720, "365d": 730}
"""The periods that the page offers, and the number of points of each."""

pytestmark = pytest.mark.browser

# Counts the pixels of one colour on a canvas. A chart without data has none.
COUNT_PIXELS = """
(canvas, [red, green, blue]) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const wanted = [red, green, blue, 255];
  let painted = 0;
  for (let i = 0; i < data.length; i += 4) {
    if (wanted.every((channel, k) => Math.abs(data[i + k] - channel) < 24)) painted++;
  }
  return painted;
}
"""
ENQUEUED_LIGHT = [0x2F, 0x6F, 0xD0]


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    """A page that fails its test if the browser reports an error."""
    async with open_page() as page:
        errors: list[str] = []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
    assert errors == []


async def test_a_pushed_message_is_drawn(platform: RunningPlatform, queue: str, page: Page) -> None:
    platform.push(queue, *range(20))
    await page.goto(f"{platform.url}/?search={queue}&period=5m")
    card = page.locator(f"article[data-queue={queue}]")

    await expect(card).to_have_attribute("data-pushed", "20", timeout=TIMEOUT_MS)
    await expect(card).to_have_attribute("data-max-depth", "20", timeout=TIMEOUT_MS)
    await expect(card.locator(".depth dd")).to_have_text("20")

    async def throughput_is_painted() -> bool:
        painted: int = await card.locator("canvas").nth(1).evaluate(COUNT_PIXELS, ENQUEUED_LIGHT)
        return painted > 20

    await wait_until_async(throughput_is_painted, TIMEOUT_S, "the pushes are drawn")
    ARTIFACTS.mkdir(exist_ok=True)
    await page.screenshot(path=ARTIFACTS / "dashboard.png")


async def test_every_period_up_to_a_year_is_drawn(platform: RunningPlatform, queue: str, page: Page) -> None:
    platform.push(queue, *range(20))
    wait_until(lambda: platform.read_counter(queue, "enqueued") == 20, TIMEOUT_S, "the pushes are counted")
    await page.goto(f"{platform.url}/?search={queue}")
    card = page.locator(f"article[data-queue={queue}]")
    for period, points in POINTS_OF_PERIODS.items():
        await page.locator("#periods label", has_text=re.compile(f"^{period}$")).click()
        await expect(card).to_have_attribute("data-points", str(points), timeout=TIMEOUT_MS)
        await expect(card).to_have_attribute("data-pushed", "20", timeout=TIMEOUT_MS)
    await expect(page.locator("#periods label")).to_have_text(list(POINTS_OF_PERIODS))
    await expect(card.locator(".plot.drawn")).to_have_count(3, timeout=TIMEOUT_MS)


async def test_metrics_of_a_stopped_pipeline_are_unknown_until_it_runs_again(
    platform: RunningPlatform, queue: str
) -> None:
    platform.push(queue, *range(20))
    wait_until(lambda: platform.read_counter(queue, "enqueued") == 20, TIMEOUT_S, "the pushes are counted")
    # The browser may report the health of the stopped pipeline as an error, so the fixture is not used.
    async with open_page() as page:
        with suspended_pipeline(platform):
            platform.push(queue, *range(5))
            await page.goto(f"{platform.url}/?search={queue}&period=5m")
            behind = re.compile(r"Metrics are behind since \d\d:\d\d:\d\d \(.* min\)\.")
            await expect(page.locator("#notice")).to_have_text(behind, timeout=TIMEOUT_MS)
            card = page.locator(f"article[data-queue={queue}]")
            await expect(card.locator("dd")).to_have_text(["25", *["–"] * 7])
            await expect(card.locator(".legend b >> visible=true")).to_have_text(["–"] * 6)
        await expect(page.locator("#notice")).to_be_hidden(timeout=TIMEOUT_MS)
        await expect(card).to_have_attribute("data-pushed", "25", timeout=TIMEOUT_MS)
        await expect(card.locator(".retried dd")).to_have_text("0")


@contextmanager
def suspended_pipeline(platform: RunningPlatform) -> Iterator[None]:
    """Suspend the pipeline with all its processes, for less time than the supervisor waits for it."""
    driver = next(p for p in platform.list_processes() if p.cmdline()[-2:] == ["pipeline", "run"])
    processes = [driver, *driver.children(recursive=True)]
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


async def test_the_number_of_dead_letters_leads_to_their_errors(
    platform: RunningPlatform, queue: str, page: Page
) -> None:
    platform.push(queue, 1)
    platform.ack(platform.pop(queue)[0], status="dlq", error="Card declined")
    await page.goto(f"{platform.url}/?search={queue}&period=5m")
    dead = page.locator(f"article[data-queue={queue}] .dead a")
    await expect(dead).to_have_text("1", timeout=TIMEOUT_MS)
    await dead.click()

    errors = page.locator("#dead-letters td:first-child")
    await expect(errors).to_have_text(["Card declined"])
    response = await page.request.get(f"{platform.url}{await errors.locator('a').get_attribute('href')}")
    assert [dead_letter["queue"] for dead_letter in (await response.json())["messages"]] == [queue]


async def test_run_queues_and_durable_queues_are_listed_together(
    platform: RunningPlatform, queue: str, page: Page
) -> None:
    platform.push(f"{queue}-b", 1)
    platform.enqueue(f"{queue}-a", 1, 2, 3, limit=5)
    await page.goto(f"{platform.url}/?search={queue}&period=5m")

    await expect(page.locator("article h2")).to_have_text([f"{queue}-a", f"{queue}-b"])
    await expect(page.locator("article .about")).to_have_text(["run queue, 0 of 5 running", "1 partition"])
    card = page.locator(f"article[data-queue={queue}-a]")
    await expect(card).to_have_attribute("data-max-depth", "3", timeout=TIMEOUT_MS)
    await expect(card.locator(".depth dd")).to_have_text("3")


async def test_the_cursor_shows_the_same_time_on_every_chart(
    platform: RunningPlatform, queue: str, page: Page
) -> None:
    platform.push(queue, 1)
    wait_until(lambda: platform.read_counter(queue, "enqueued") == 1, TIMEOUT_S, "the push is counted")
    await page.goto(f"{platform.url}/?search={queue}&period=5m")
    charts = page.locator(f"article[data-queue={queue}] .charts")
    await expect(charts.locator(".plot.drawn")).to_have_count(3, timeout=TIMEOUT_MS)

    await charts.focus()
    await page.keyboard.press("ArrowLeft")

    times = await charts.locator(".cursor-time").all_inner_texts()
    assert len(times) == 3
    assert len(set(times)) == 1
    assert re.fullmatch(r"\d\d:\d\d:\d\d", times[0])


async def test_the_search_finds_a_queue_or_reports_no_match(
    platform: RunningPlatform, queue: str, page: Page
) -> None:
    platform.push(queue, 1)
    await page.goto(platform.url)
    await page.keyboard.press("/")
    await page.keyboard.type(queue)
    await expect(page.locator("article h2")).to_have_text([queue])

    await page.keyboard.type("-not")
    await expect(page.get_by_text(f"No queue has “{queue}-not” in its name.")).to_be_visible()


async def test_the_page_shows_the_health_of_every_component(platform: RunningPlatform, page: Page) -> None:
    await page.goto(platform.url)

    components = page.locator("#components li.up")
    await expect(components.filter(has_text="postgres")).to_have_count(1)
    await expect(components.filter(has_text="pipeline")).to_have_count(1)
    await expect(page.locator("#components li.down")).to_have_count(0)
