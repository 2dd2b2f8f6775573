"""The unit tests of the console's modules, in a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, Page, Route

from penstock.console import STATIC
from tests.browser import new_page

pytestmark = pytest.mark.browser
TESTS = Path(__file__).parents[2] / "javascript"
ORIGIN = "http://127.0.0.1:7480"
RUN = "async (url) => (await import('/tests/run.js')).runTests(url)"


@pytest.fixture(scope="module")
async def page(browser: Browser) -> AsyncIterator[Page]:
    async with new_page(browser) as page:
        await page.route("**/*", serve)
        yield page


async def serve(route: Route) -> None:
    """Serve the console's files under `/static/`, the tests under `/tests/`, and an empty document."""
    path = urlsplit(route.request.url).path
    if path.startswith("/static/"):
        await route.fulfill(path=STATIC / path.removeprefix("/static/"), content_type="text/javascript")
    elif path.startswith("/tests/"):
        await route.fulfill(path=TESTS / path.removeprefix("/tests/"), content_type="text/javascript")
    else:
        await route.fulfill(content_type="text/html", body="<!doctype html><title>Tests</title>")


@pytest.mark.parametrize("module", sorted(path.name for path in TESTS.glob("*.test.js")))
async def test_module(page: Page, module: str) -> None:
    await page.goto(f"{ORIGIN}/")
    result = await page.evaluate(RUN, f"/tests/{module}")
    assert result["failures"] == []
    assert result["assertions"] > 0
