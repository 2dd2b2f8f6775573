"""The overview and the list of queues in a real browser, on a real platform."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from penstock.embedded.supervision.process import command_words
from tests.browser import open_page
from tests.deadlines import deadline_s
from tests.whole_platform import RunningPlatform

ARTIFACTS = Path(__file__).parents[2] / "artifacts"
TIMEOUT_MS = deadline_s(60) * 1_000
PIPELINE_MODULE = "penstock.pipeline.pipeline_process"

pytestmark = pytest.mark.browser


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    """A page that fails its test if the browser reports an error."""
    async with open_page() as page:
        errors: list[str] = []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
    assert errors == []


async def test_messages_and_tasks_are_counted_on_every_page(
    platform: RunningPlatform, queue: str, page: Page
) -> None:
    platform.push(f"{queue}-b", *range(20))
    platform.ack(platform.pop(f"{queue}-b")[0])
    platform.enqueue(f"{queue}-a", 1, 2, 3, limit=5)
    ARTIFACTS.mkdir(exist_ok=True)
    await page.goto(f"{platform.url}/console/queues?search={queue}")
    rows = page.locator("tbody tr")
    await expect(rows.locator("td:nth-child(2)")).to_have_text(["run", "durable"])
    await expect(rows.locator("td:nth-child(4)")).to_have_text(["3", "19"])
    wait_p95 = rows.nth(1).locator("td:nth-child(5)")
    await expect(wait_p95).to_have_text(re.compile(r"\d+ m?s"), timeout=TIMEOUT_MS)
    await page.screenshot(path=ARTIFACTS / "queues.png")

    await page.goto(f"{platform.url}/console/queues?search={queue}&view=charts&period=5m")
    await expect(page.locator("article .plot.drawn")).to_have_count(6, timeout=TIMEOUT_MS)
    await page.screenshot(path=ARTIFACTS / "charts.png")

    await page.goto(platform.url)
    await expect(page.locator(".components .up", has_text="pipeline")).to_have_count(1)
    await expect(page.locator(".stat", has_text="Waiting").locator("svg")).to_be_visible()
    await page.screenshot(path=ARTIFACTS / "overview.png")


async def test_the_overview_says_since_when_the_pipeline_is_stopped(
    platform: RunningPlatform, queue: str
) -> None:
    # The browser may report the health of the stopped pipeline as an error, so the fixture is not used.
    async with open_page() as page:
        await page.goto(platform.url)
        item = page.locator("[data-kind=components] li", has_text="pipeline")
        with suspended_pipeline(platform):
            platform.push(queue, *range(5))
            await expect(item).to_contain_text(re.compile(r"last report|behind"), timeout=TIMEOUT_MS)
            await expect(item).to_contain_text("began")
        await expect(item).to_have_count(0, timeout=TIMEOUT_MS)


@contextmanager
def suspended_pipeline(platform: RunningPlatform) -> Iterator[None]:
    """Suspend the pipeline with all its processes, for less time than the supervisor waits for it."""
    driver = next(p for p in platform.list_processes() if PIPELINE_MODULE in command_words(p))
    processes = [driver, *driver.children(recursive=True)]
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()
