"""The dialog of tokens in a real browser, with a real broker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.browser import open_page, report_policy_violations
from tests.integration.client.broker_server import run_broker

pytestmark = pytest.mark.browser


@pytest_asyncio.fixture
async def broker_url(database_url: str) -> AsyncIterator[str]:
    async with run_broker(database_url, metrics_enabled=False) as url:
        yield url


@pytest_asyncio.fixture
async def page(broker_url: str) -> AsyncIterator[Page]:
    """The page of a broker; dialogs of confirmation are accepted."""
    async with open_page() as page:
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: dialog.accept())
        report_policy_violations(page, problems)
        await page.goto(broker_url)
        yield page
        assert problems == []


async def push_status(broker_url: str, secret: str) -> int:
    body = {"items": [{"queue": "orders-eu", "payload": 1}]}
    async with httpx.AsyncClient(base_url=broker_url) as http:
        headers = {"Authorization": f"Bearer {secret}"}
        return (await http.post("/api/v1/push", json=body, headers=headers)).status_code


async def create_token(page: Page, name: str) -> str:
    """Create a token in the open dialog; return its secret."""
    dialog = page.get_by_role("dialog")
    await dialog.get_by_text("Create a token").click()
    await dialog.get_by_label("Name").fill(name)
    await dialog.get_by_label("produce").check()
    await dialog.get_by_label("Only queues").fill("orders-*, invoices")
    await dialog.get_by_role("button", name="Create").click()
    secret = dialog.locator("#new-secret code")
    await expect(secret).to_be_visible()
    return await secret.inner_text()


async def test_a_token_is_created_rotated_and_revoked(page: Page, broker_url: str) -> None:
    await page.get_by_role("button", name="Tokens").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_text("There are no tokens.")).to_be_visible()
    secret = await create_token(page, "ci")
    assert await push_status(broker_url, secret) == 201
    row = dialog.get_by_role("row", name="ci")
    await expect(row).to_contain_text("produce; only queues orders-*, invoices")
    await row.get_by_role("button", name="Rotate").click()
    await expect(dialog.locator("#new-secret code")).not_to_have_text(secret)
    new_secret = await dialog.locator("#new-secret code").inner_text()
    assert [await push_status(broker_url, text) for text in (secret, new_secret)] == [201, 201]
    await row.get_by_role("button", name="Revoke").click()
    await expect(dialog.get_by_text("There are no tokens.")).to_be_visible()
    assert await push_status(broker_url, new_secret) == 401


async def test_a_secret_is_gone_when_the_dialog_is_closed(page: Page) -> None:
    await page.get_by_role("button", name="Tokens").click()
    secret = await create_token(page, "ci")
    await page.get_by_role("button", name="Close").click()
    await page.get_by_role("button", name="Tokens").click()
    await expect(page.get_by_role("row", name="ci")).to_be_visible()
    assert secret not in await page.content()


async def test_a_refused_token_shows_the_reason(page: Page) -> None:
    await page.get_by_role("button", name="Tokens").click()
    await create_token(page, "ci")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_text("Create a token").click()
    await dialog.get_by_label("Name").fill("ci")
    await dialog.get_by_label("configure").check()
    await dialog.get_by_role("button", name="Create").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("'ci' exists")
