"""A real Chromium for the tests of web pages."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

from tests.deadlines import deadline_s

EXECUTABLE_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next(filter(None, map(shutil.which, EXECUTABLE_NAMES)), None)
if CHROMIUM is None:
    # Every module that imports this one is skipped here, so the report has one line for all of them.
    pytest.skip(
        "Chromium is not installed; run tools/test_program.sh chromium to include the browser tests",
        allow_module_level=True,
    )
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


EXPECT_TIMEOUT_S = 5
"""How long `expect` waits for its condition on a quiet machine."""


def report_policy_violations(page: Page, reports: list[str]) -> None:
    """Append each violation of the page's content security policy to the list."""

    def handle(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            reports.append(message.text)

    page.on("console", handle)


async def assert_accessible(page: Page) -> None:
    """Check the page with axe-core: no serious or critical finding."""
    results = await Axe().run(page)
    findings = [
        f"{violation['id']}: {violation['help']}\n  {node['html']}\n  {node['failureSummary']}"
        for violation in results.response["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
    assert not findings, "\n".join(findings)


@asynccontextmanager
async def launch_browser() -> AsyncIterator[Browser]:
    expect.set_options(timeout=deadline_s(EXPECT_TIMEOUT_S) * 1000)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def new_page(browser: Browser) -> AsyncIterator[Page]:
    """Open an empty page of 1440 × 900 pixels in light mode, with cookies and storage of its own."""
    context = await browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    try:
        yield await context.new_page()
    finally:
        await context.close()


@asynccontextmanager
async def open_page() -> AsyncIterator[Page]:
    """Open a page in a new browser."""
    async with launch_browser() as browser, new_page(browser) as page:
        yield page
