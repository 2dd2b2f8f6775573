"""The page Access in a real browser, with a real broker: tokens, environments, quotas and the audit log."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import httpx
import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser import assert_accessible
from tests.integration.client.broker_server import run_broker
from tests.integration.console.real_console import confirm, open_console
from tests.integration.databases import cloned_database

pytestmark = pytest.mark.browser
PATH = "/console/access"


@pytest.fixture(scope="module")
async def broker_url(postgres_url: str, administrator: object, template: str) -> AsyncIterator[str]:
    async with (
        cloned_database(administrator, postgres_url, template) as database_url,  # type: ignore[arg-type]
        run_broker(database_url, metrics_enabled=False) as url,
    ):
        yield url


@pytest.fixture
async def page(browser: Browser, broker_url: str) -> AsyncIterator[Page]:
    async with open_console(browser, broker_url, PATH) as page:
        yield page


async def push_status(broker_url: str, secret: str) -> int:
    body = {"items": [{"queue": "orders-eu", "payload": 1}]}
    async with httpx.AsyncClient(base_url=broker_url) as http:
        headers = {"Authorization": f"Bearer {secret}"}
        return (await http.post("/api/v1/push", json=body, headers=headers)).status_code


async def create_token(page: Page, name: str) -> str:
    """Create a token; return its secret."""
    await page.get_by_role("button", name="New token").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill(name)
    await dialog.get_by_label("produce", exact=False).first.check()
    await dialog.get_by_label("Only queues").fill("orders-*, invoices")
    await dialog.get_by_role("button", name="Create").click()
    return await page.locator(".new-secret code").inner_text()


async def test_a_token_is_created_rotated_and_revoked(page: Page, broker_url: str) -> None:
    secret = await create_token(page, "ci")
    assert await push_status(broker_url, secret) == 201
    row = page.get_by_role("row", name="ci")
    await expect(row).to_contain_text("produce; only queues orders-*, invoices")
    await assert_accessible(page)
    await row.get_by_role("button", name="Rotate").click()
    await confirm(page, "Rotate")
    shown_secret = page.locator(".new-secret code")
    await expect(shown_secret).not_to_have_text(secret)
    new_secret = await shown_secret.inner_text()
    assert [await push_status(broker_url, text) for text in (secret, new_secret)] == [201, 201]
    await page.get_by_role("button", name="Done").click()
    assert new_secret not in await page.content()
    await row.get_by_role("button", name="Revoke").click()
    await confirm(page, "Revoke")
    await expect(page.get_by_text("The token ci is revoked.")).to_be_visible()
    await expect(row).to_have_count(0)
    assert await push_status(broker_url, new_secret) == 401
    await page.get_by_label("Revoked tokens too").check()
    await expect(row).to_contain_text("revoked")


async def test_a_refused_token_shows_the_reason(page: Page) -> None:
    await page.get_by_role("button", name="New token").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("wrong name")
    await dialog.get_by_role("button", name="Create").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("name must have only letters, digits")


async def test_an_environment_is_created_limited_and_deleted(page: Page, broker_url: str) -> None:
    await page.get_by_role("link", name="Environments").click()
    await page.get_by_role("button", name="New environment").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("acme/shop/staging")
    await dialog.get_by_role("button", name="Create").click()
    row = page.get_by_role("row", name="acme/shop/staging")
    await row.get_by_role("button", name="Quotas").click()
    await dialog.get_by_label("storedMessages").fill("5000")
    await dialog.get_by_role("button", name="Save").click()
    await expect(row).to_contain_text("storedMessages 5,000")
    await assert_accessible(page)
    await row.get_by_role("button", name="Delete").click()
    await confirm(page, "Delete", typed_text="acme/shop/staging")
    await expect(page.get_by_text("The environment acme/shop/staging is being deleted.")).to_be_visible()


async def test_the_quotas_of_the_environment_are_changed_and_shown(page: Page) -> None:
    await page.get_by_role("link", name="Quotas").click()
    await page.get_by_role("button", name="Change the quotas").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("queues", exact=True).fill("7")
    await dialog.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("row", name="queues")).to_contain_text("7")
    await assert_accessible(page)


async def test_the_audit_log_is_filtered_compared_and_exported(page: Page, broker_url: str) -> None:
    async with httpx.AsyncClient(base_url=broker_url) as http:
        for retry_limit in (3, 9):
            body = {"queue": "audited", "options": {"retryLimit": retry_limit}}
            assert (await http.post("/api/v1/configure", json=body)).status_code == 200
    await page.get_by_role("link", name="Audit log").click()
    await page.get_by_label("Object").fill("audited")
    rows = page.get_by_role("row").filter(has_text="POST /api/v1/configure")
    await expect(rows).to_have_count(2)
    await page.wait_for_url("**object=audited*")
    await rows.first.get_by_role("button").click()
    changed = page.get_by_role("dialog").get_by_role("row", name="retryLimit")
    await expect(changed.locator(".removed")).to_have_text("3")
    await expect(changed.locator(".added")).to_have_text("9")
    await assert_accessible(page)
    await page.get_by_role("button", name="Close").click()
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Export").click()
    lines = (await (await download.value).path()).read_text().splitlines()
    assert [json.loads(line)["object"]["queue"] for line in lines] == ["audited", "audited"]


async def test_a_link_with_an_environment_selects_it(page: Page, broker_url: str) -> None:
    async with httpx.AsyncClient(base_url=broker_url) as http:
        environment = {"organization": "acme", "project": "shop", "environment": "linked"}
        assert (await http.post("/api/v1/environments", json=environment)).status_code == 201
        headers = {"X-Penstock-Environment": "acme/shop/linked"}
        body = {"items": [{"queue": "only-there", "payload": 1}]}
        assert (await http.post("/api/v1/push", json=body, headers=headers)).status_code == 201
    await page.goto(f"{broker_url}/console/queues/only-there?range=1h&environment=acme/shop/linked")
    await expect(page.get_by_role("heading", level=1, name="only-there")).to_be_visible()
    await expect(page.get_by_label("Environment")).to_have_value("acme/shop/linked")
    await expect(page).to_have_url(f"{broker_url}/console/queues/only-there?range=1h")
    await page.goto(f"{broker_url}/console/access?environment=no/such/one")
    await expect(page.get_by_label("Environment")).to_have_value("default/default/default")
