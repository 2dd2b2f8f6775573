"""A real Chromium for the tests that look at pages."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Page, async_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
if CHROMIUM is None:
    # Raised here for every module that imports this one, so the report has one line for all of them.
    pytest.skip("no Chromium here: the browser tests are left out", allow_module_level=True)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@asynccontextmanager
async def open_page() -> AsyncIterator[Page]:
    """An empty page of 1440 × 900, light, with a browser of its own."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield await browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme="light")
        finally:
            await browser.close()
