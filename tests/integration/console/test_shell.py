"""The shell around every page: login, account, environment, notice, preferences and keyboard."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.browser import assert_accessible
from tests.integration.console.fake_api import ORIGIN, FakeApi

pytestmark = pytest.mark.browser
ENVIRONMENTS = ["default/default/default", "acme/shop/staging"]
MISSING_PAGE = f"{ORIGIN}/console/missing"
"""A page that makes no requests of its own."""


async def test_a_broker_without_logins_shows_no_account(page: Page) -> None:
    await page.goto(MISSING_PAGE)
    await expect(page.get_by_role("heading", name="Page not found")).to_be_visible()
    await expect(page.get_by_label("Environment")).to_be_hidden()
    await expect(page.get_by_role("button", name="Log out")).to_be_hidden()
    await assert_accessible(page)


async def test_one_of_several_environments_can_be_selected(page: Page, api: FakeApi) -> None:
    api.session["environments"] = ENVIRONMENTS
    await page.goto(MISSING_PAGE)
    async with page.expect_request(
        lambda request: request.headers.get("x-penstock-environment") == "acme/shop/staging"
    ):
        await page.get_by_label("Environment").select_option("acme/shop/staging")


async def test_html_in_a_name_is_shown_as_text(page: Page, api: FakeApi) -> None:
    name = "<img src=x onerror=alert(1)>"
    api.session |= {"subject": "user:1", "name": name, "role": "viewer", "csrfToken": "c-1"}
    await page.goto(MISSING_PAGE)
    await expect(page.locator("#account-name")).to_have_text(name)
    async with page.expect_request(lambda request: request.method == "DELETE") as request:
        await page.get_by_role("button", name="Log out").click()
    assert (await request.value).headers["x-csrf-token"] == "c-1"


async def test_a_session_that_ends_shows_the_login_page(page: Page, api: FakeApi) -> None:
    api.session |= {"authenticated": False, "login": {"oidc": "Example", "token": True}}
    await page.goto(f"{MISSING_PAGE}?a=b")
    link = page.get_by_role("link", name="Log in with Example")
    await expect(link).to_have_attribute("href", "/auth/login?next=%2Fconsole%2Fmissing%3Fa%3Db")
    await page.get_by_text("Log in with a token").click()
    await assert_accessible(page)
    await page.get_by_label("Token").fill("pk_wrong")
    async with page.expect_request(lambda request: request.method == "POST") as request:
        await page.get_by_role("button", name="Log in").click()
    assert (await request.value).post_data_json == {"token": "pk_wrong"}


async def test_a_component_that_is_down_is_named_with_its_reason(page: Page, api: FakeApi) -> None:
    parts = {"postgres": {"status": "up"}, "clickhouse": {"status": "down", "detail": "connection refused"}}
    api.health = (503, {"status": "degraded", "parts": parts})
    await page.goto(MISSING_PAGE)
    await expect(page.locator(".notice")).to_have_text("clickhouse: connection refused")
    api.reachable = False
    await expect(page.locator(".notice")).to_contain_text("The broker is unreachable", timeout=15_000)


async def test_theme_and_time_zone_are_kept(page: Page) -> None:
    await page.goto(MISSING_PAGE)
    await expect(page.locator("html")).to_have_attribute("data-theme", "light")
    await page.get_by_label("Theme").select_option("dark")
    await page.get_by_label("Time zone").select_option("UTC")
    await page.reload()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await expect(page.get_by_label("Time zone")).to_have_value("UTC")
    await assert_accessible(page)


async def test_the_keyboard_lists_its_shortcuts_and_refreshes(page: Page, api: FakeApi) -> None:
    await page.goto(MISSING_PAGE)
    await expect(page.get_by_role("heading", name="Page not found")).to_be_visible()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    await assert_accessible(page)
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    requests = api.requests["/api/v1/session"]
    await page.keyboard.press("r")
    await api.wait_for_requests("/api/v1/session", requests)
