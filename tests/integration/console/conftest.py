"""The page in a real browser, with faked responses."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page

from tests.browser import launch_browser, new_page, report_policy_violations
from tests.integration.console.fake_api import FakeApi


@pytest.fixture
async def api() -> FakeApi:
    fake = FakeApi()
    fake.gate.set()
    return fake


@pytest.fixture(scope="package")
async def browser() -> AsyncIterator[Browser]:
    """One browser for all tests of the console. Each test has its own page."""
    async with launch_browser() as browser:
        yield browser


@pytest.fixture
async def page(browser: Browser, api: FakeApi) -> AsyncIterator[Page]:
    async with new_page(browser) as page:
        page_errors: list[str] = []
        page.on("pageerror", lambda error: page_errors.append(str(error)))
        report_policy_violations(page, page_errors)
        await page.route("**/*", api.handle)
        yield page
        await page.unroute_all(behavior="ignoreErrors")
        assert page_errors == []
