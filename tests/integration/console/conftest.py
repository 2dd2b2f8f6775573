"""The page in a real browser, with faked responses."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page

from tests.browser import open_page, report_policy_violations
from tests.integration.console.fake_api import FakeApi


@pytest.fixture
async def api() -> FakeApi:
    fake = FakeApi()
    fake.gate.set()
    return fake


@pytest.fixture
async def page(api: FakeApi) -> AsyncIterator[Page]:
    async with open_page() as page:
        page_errors: list[str] = []
        page.on("pageerror", lambda error: page_errors.append(str(error)))
        report_policy_violations(page, page_errors)
        await page.route("**/*", api.handle)
        yield page
        await page.unroute_all(behavior="ignoreErrors")
        assert page_errors == []
