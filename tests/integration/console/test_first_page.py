"""What a browser loads until the console can be used: bytes, and requests that wait for each other."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from penstock.api.module_preload import find_modules, read_page, read_routes
from penstock.config import Settings
from penstock.console import STATIC
from tests.browser import new_page
from tests.deadlines import deadline_s
from tests.integration.api.conftest import shared_settings as base_settings
from tests.integration.api.http.raw_connections import RunningServer, run_server
from tests.waiting import wait_until_async

pytestmark = pytest.mark.browser
shared_settings = base_settings

MAX_COMPRESSED_BYTES = 150_000
MAX_SEQUENTIAL_REQUESTS = 4
"""The document; its files; the session; the data of the page."""
READ_TIMINGS = """() => ["navigation", "resource"].flatMap((type) => performance.getEntriesByType(type)).map(
  ({ name, startTime, responseEnd, encodedBodySize, decodedBodySize }) =>
    ({ name, startTime, responseEnd, encodedBodySize, decodedBodySize }))"""
INTERACTIVE_MS = "performance.getEntriesByName('interactive')[0]?.startTime"


@pytest_asyncio.fixture(scope="module")
async def server(shared_settings: Settings) -> AsyncIterator[RunningServer]:
    async with run_server(shared_settings) as running_server:
        yield running_server


async def test_the_first_page_is_small_and_needs_few_round_trips(
    browser: Browser, server: RunningServer, record_property: Any
) -> None:
    async with new_page(browser) as page:
        await page.goto(f"http://127.0.0.1:{server.port}/")
        # The page's policy forbids what `wait_for_function` does.
        interactive_ms = await wait_until_async(
            lambda: page.evaluate(INTERACTIVE_MS), 20, "the page can be used"
        )
        await page.get_by_role("heading", level=1).wait_for(timeout=deadline_s(20) * 1000)
        timings = await page.evaluate(READ_TIMINGS)
    size = sum(timing["encodedBodySize"] for timing in timings)
    # What was requested before the page could be used; live data follows for as long as the page is open.
    before = [timing for timing in timings if timing["responseEnd"] <= interactive_ms]
    print(f"{len(timings)} requests, {size:,} bytes, interactive after {interactive_ms:.0f} ms")
    record_property("first_page_bytes", size)
    record_property("interactive_ms", interactive_ms)
    assert size < MAX_COMPRESSED_BYTES, {timing["name"]: timing["encodedBodySize"] for timing in timings}
    assert size < sum(timing["decodedBodySize"] for timing in timings) / 2, "files are compressed"
    assert count_sequential(before) <= MAX_SEQUENTIAL_REQUESTS, before


def count_sequential(timings: list[dict[str, Any]]) -> int:
    """Return the length of the longest chain of requests that each start after the one before has ended."""
    count, ended_at = 0, -1.0
    for timing in sorted(timings, key=lambda timing: timing["responseEnd"]):
        if timing["startTime"] >= ended_at:
            count, ended_at = count + 1, timing["responseEnd"]
    return count


def test_each_page_names_the_modules_it_imports() -> None:
    routes = read_routes(STATIC)
    assert len(routes) == (STATIC / "js/routes.js").read_text().count("import("), "every route is recognised"
    for pattern, module in routes.items():
        page = read_page(STATIC, re.sub(r":\\w+", "name", pattern)).plain.decode()
        for imported in find_modules(STATIC, ("js/main.js", module)):
            assert f'<link rel="modulepreload" href="/static/{imported}">' in page
    assert "/static/js/pages/" not in read_page(STATIC, "/console/no-such-page").plain.decode()
