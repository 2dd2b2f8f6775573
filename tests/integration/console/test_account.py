"""The account in the header, and the login page."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.integration.console.fake_api import ORIGIN, FakeApi

pytestmark = pytest.mark.browser
ENVIRONMENTS = ["default/default/default", "acme/shop/staging"]


async def test_a_broker_without_logins_shows_no_account(page: Page, api: FakeApi) -> None:
    await page.goto(ORIGIN)
    await api.wait_for_requests("/api/v1/session", 0)
    await expect(page.get_by_text("No messages yet")).to_be_visible()
    await expect(page.locator("#account")).to_be_hidden()
    await expect(page.locator("#login")).to_be_hidden()


async def test_without_logins_one_of_several_environments_can_be_selected(page: Page, api: FakeApi) -> None:
    api.session["environments"] = ENVIRONMENTS
    await page.goto(ORIGIN)
    await expect(page.get_by_label("Environment")).to_be_visible()
    await expect(page.get_by_role("button", name="Log out")).to_be_hidden()
    async with page.expect_request("**/api/v1/resources/queues?*") as request:
        await page.get_by_label("Environment").select_option("acme/shop/staging")
    assert (await request.value).headers["x-penstock-environment"] == "acme/shop/staging"


async def test_html_in_a_name_is_shown_as_text(page: Page, api: FakeApi) -> None:
    name = "<img src=x onerror=alert(1)>"
    api.session |= {"subject": "user:1", "name": name, "role": "viewer", "csrfToken": "c-1"}
    await page.goto(ORIGIN)
    await expect(page.locator("#account-name")).to_have_text(name)
    async with page.expect_request(lambda request: request.method == "DELETE") as request:
        await page.get_by_role("button", name="Log out").click()
    assert (await request.value).headers["x-csrf-token"] == "c-1"


async def test_only_administrators_are_offered_the_tokens(page: Page, api: FakeApi) -> None:
    api.session |= {"subject": "user:1", "name": "Ada", "role": "operator", "scopes": ["read", "operate"]}
    await page.goto(ORIGIN)
    await expect(page.locator("#account-name")).to_be_visible()
    await expect(page.get_by_role("button", name="Tokens")).to_be_hidden()
    api.session["scopes"] = ["read", "admin"]
    await page.reload()
    await expect(page.get_by_role("button", name="Tokens")).to_be_visible()
