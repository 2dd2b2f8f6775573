"""The guide: it builds without warnings and broken links, and works in a browser under the policy."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Page, Route, expect
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount

from penstock.api.guide_files import GUIDE_PATH, GuideFiles
from penstock.api.http.client_address import TrustedProxies
from penstock.api.http.security_headers import SecurityHeadersMiddleware
from penstock.config import Settings
from tests.browser import open_page, report_policy_violations

ROOT = Path(__file__).parents[3]
ORIGIN = "http://127.0.0.1:7480"
GUIDE_URL = f"{ORIGIN}{GUIDE_PATH}"
BACKGROUND = "getComputedStyle(document.documentElement).getPropertyValue('--sy-c-background')"
IS_WIDER_THAN_WINDOW = "document.documentElement.scrollWidth > innerWidth"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The guide, built like that of `make docs`."""
    directory = tmp_path_factory.mktemp("guide")
    tool = ROOT / "tools" / "guide" / "build_guide.py"
    options = ("--strict", "--output", directory / "site", "--cache", directory / "cache")
    result = subprocess.run([sys.executable, tool, *options], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return directory / "site"


def client_for(directory: Path) -> httpx.AsyncClient:
    app = Starlette(
        routes=[Mount(GUIDE_PATH, GuideFiles(directory))], middleware=[Middleware(SecurityHeadersMiddleware)]
    )
    app.state.trusted_proxies = TrustedProxies(Settings())
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN)


@pytest.fixture
async def guide_page(site: Path) -> AsyncIterator[Page]:
    """A browser page for the guide. The test fails on errors, missing files and violations of the policy."""
    async with client_for(site) as client, open_page() as page:
        reports: list[str] = []

        async def serve(route: Route) -> None:
            response = await client.get(route.request.url, headers={"Accept-Encoding": "identity"})
            if response.status_code >= 400:
                reports.append(f"{response.status_code} {route.request.url}")
            await route.fulfill(
                status=response.status_code, headers=dict(response.headers), body=response.content
            )

        page.on("pageerror", lambda error: reports.append(str(error)))
        report_policy_violations(page, reports)
        await page.route("**/*", serve)
        yield page
        assert reports == []


@pytest.mark.browser
async def test_search_finds_a_page(guide_page: Page) -> None:
    await guide_page.goto(f"{GUIDE_URL}/search.html?q=vacuum+horizon")
    await expect(guide_page.locator("#search-results a", has_text="Vacuum horizon").first).to_be_visible()


@pytest.mark.browser
async def test_a_reader_can_choose_dark_colors_and_they_stay(guide_page: Page) -> None:
    await guide_page.goto(f"{GUIDE_URL}/index.html")
    light = await guide_page.evaluate(BACKGROUND)
    for _ in ("to light", "to dark"):
        await guide_page.locator("button.js-theme").click()
    assert await guide_page.evaluate(BACKGROUND) != light
    await guide_page.goto(f"{GUIDE_URL}/reference/settings.html")
    await expect(guide_page.locator("html.dark")).to_be_attached()


@pytest.mark.browser
async def test_no_page_is_wider_than_a_phone(guide_page: Page) -> None:
    await guide_page.set_viewport_size({"width": 390, "height": 844})
    wide_pages = []
    for page in ("index", "client", "performance", "reference/settings", "reference/api"):
        await guide_page.goto(f"{GUIDE_URL}/{page}.html")
        if await guide_page.evaluate(IS_WIDER_THAN_WINDOW):
            wide_pages.append(page)
    assert wide_pages == []


async def test_browsers_check_that_a_page_is_current(site: Path) -> None:
    async with client_for(site) as client:
        response = await client.get(f"{GUIDE_PATH}/")
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-cache"
    assert "etag" in response.headers


async def test_a_guide_that_is_not_built_says_how_to_build_it(tmp_path: Path) -> None:
    async with client_for(tmp_path / "none") as client:
        response = await client.get(f"{GUIDE_PATH}/")
    assert response.status_code == 404
    assert "make docs" in response.text


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ('<a href="other.html">', "no such file"),
        ('<a href="#part">', "no such anchor"),
        ('<img src="https://example.com/x.png">', "another host"),
        ("<script>1</script>", "inline"),
        ('<p style="color: red">', "inline"),
    ],
)
def test_make_docs_reports_a_page_that_would_not_work(tmp_path: Path, page: str, problem: str) -> None:
    (tmp_path / "index.html").write_text(page)
    checker = ROOT / "tools" / "guide" / "site_links.py"
    [reported] = runpy.run_path(str(checker))["find_problems"](tmp_path)
    assert problem in reported
