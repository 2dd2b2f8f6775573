"""A real Chromium for the tests of web pages."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import ConsoleMessage, Page, async_playwright

EXECUTABLE_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next(filter(None, map(shutil.which, EXECUTABLE_NAMES)), None)
if CHROMIUM is None:
    # Every module that imports this one is skipped here, so the report has one line for all of them.
    pytest.skip(
        "Chromium is not installed; run tools/chromium.sh to include the browser tests",
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


def report_policy_violations(page: Page, reports: list[str]) -> None:
    """Append each violation of the page's content security policy to the list."""

    def handle(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            reports.append(message.text)

    page.on("console", handle)


@asynccontextmanager
async def open_page() -> AsyncIterator[Page]:
    """Open an empty page of 1440 × 900 pixels in light mode, in a new browser."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield await browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme="light")
        finally:
            await browser.close()
