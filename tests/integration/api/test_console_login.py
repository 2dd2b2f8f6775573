"""People log in to the console with a real browser, a real broker and a real identity provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from penstock.access.token_service import NewToken
from penstock.config import Settings
from penstock.durable.pool import Database
from tests.browser import open_page, report_policy_violations
from tests.deadlines import deadline_s
from tests.integration.access.people.identity_providers import (
    CLIENT_ID,
    CLIENT_SECRET,
    PASSWORD,
    run_identity_provider,
)
from tests.integration.api.broker_tokens import (
    ALL_SCOPES,
    OTHER_ENVIRONMENT,
    GuardedBroker,
    create_other_environment,
    run_guarded_broker,
)

pytestmark = pytest.mark.browser
PROVIDER_POLICY = "directive 'default-src 'self''"
"""Pages of the provider violate their own policy, which is not that of the console."""
TIMEOUT_MS = deadline_s(15) * 1000


@dataclass(frozen=True)
class OpenConsole:
    page: Page
    broker: GuardedBroker
    url: str


@asynccontextmanager
async def open_console(settings: Settings, changes: Mapping[str, object]) -> AsyncIterator[OpenConsole]:
    """Open the console of a broker with these settings. It must not violate its content security policy."""
    violations: list[str] = []
    async with run_guarded_broker(settings.model_copy(update=dict(changes))) as broker, open_page() as page:
        page.set_default_timeout(TIMEOUT_MS)
        report_policy_violations(page, violations)
        page.on("pageerror", lambda error: violations.append(str(error)))
        yield OpenConsole(page, broker, f"http://127.0.0.1:{broker.server.port}")
    assert [text for text in violations if PROVIDER_POLICY not in text] == []


@pytest_asyncio.fixture(autouse=True)
async def environment(database: Database) -> None:
    await create_other_environment(database)


END_SESSION = """async () => {
    const { csrfToken } = await (await fetch("/api/v1/session")).json();
    const headers = { "X-CSRF-Token": csrfToken };
    return (await fetch("/api/v1/session", { method: "DELETE", headers })).status;
}"""


async def push(broker: GuardedBroker, queue: str, secret: str) -> None:
    async with broker.client(secret) as client:
        body = {"items": [{"queue": queue, "payload": 1}]}
        assert (await client.post("/api/v1/push", json=body)).status_code == 201


async def test_a_token_opens_the_console(settings: Settings) -> None:
    async with open_console(settings, {}) as console:
        secret = await console.broker.create(NewToken(name="ops", scopes=ALL_SCOPES))
        await push(console.broker, "orders", secret)
        page = console.page
        await page.goto(f"{console.url}/?queue=orders")
        await expect(page.get_by_role("heading", name="Log in to Penstock")).to_be_visible()
        await expect(page.get_by_role("heading", name="orders")).to_have_count(0)
        await expect(page.get_by_role("link", name="Log in with")).to_have_count(0)
        await page.get_by_label("Token", exact=True).fill("pk_wrong")
        await page.get_by_role("button", name="Log in", exact=True).click()
        await expect(page.get_by_role("alert")).to_contain_text("The token is unknown, expired or revoked.")
        await page.get_by_label("Token", exact=True).fill(secret)
        await page.get_by_role("button", name="Log in", exact=True).click()
        await expect(page.get_by_role("heading", level=1, name="orders")).to_be_visible()
        await expect(page.locator("#account-name")).to_have_text("ops")
        assert secret not in await page.evaluate("JSON.stringify([document.cookie, {...sessionStorage}])")
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_role("heading", name="Log in to Penstock")).to_be_visible()
        await expect(page.get_by_role("heading", name="orders")).to_have_count(0)


async def test_the_login_page_appears_when_the_session_ends(settings: Settings) -> None:
    async with open_console(settings, {}) as console:
        secret = await console.broker.secret(ALL_SCOPES)
        page = console.page
        await page.goto(console.url)
        await page.get_by_label("Token", exact=True).fill(secret)
        await page.get_by_role("button", name="Log in", exact=True).click()
        await expect(page.get_by_text("No queues yet")).to_be_visible()
        await expect(page.locator("main code")).to_contain_text("authorization: Bearer $PENSTOCK_TOKEN")
        assert await page.evaluate(END_SESSION) == 204
        await expect(page.get_by_role("heading", name="Log in to Penstock")).to_be_visible()


async def test_a_person_logs_in_through_the_provider_and_selects_an_environment(settings: Settings) -> None:
    async with run_identity_provider() as provider:
        oidc_settings = {
            "oidc_issuer": provider.issuer,
            "oidc_client_id": CLIENT_ID,
            "oidc_client_secret": CLIENT_SECRET,
            "oidc_roles": "operators=operator,operators=viewer@acme/shop/staging",
        }
        async with open_console(settings, oidc_settings) as console:
            await provider.add_redirect_uri(f"{console.url}/auth/callback")
            await push(console.broker, "orders", await console.broker.secret(ALL_SCOPES))
            await push(console.broker, "refunds", await console.broker.secret(ALL_SCOPES, OTHER_ENVIRONMENT))
            await log_in_through_provider(console.page, f"{console.url}/console/queues?search=r")
            page = console.page
            assert page.url == f"{console.url}/console/queues?search=r"
            await expect(page.locator("tbody tr")).to_contain_text(["orders"])
            await expect(page.locator("#account-name")).to_have_text("alice")
            await page.locator("#environment").select_option("acme/shop/staging")
            await expect(page.locator("tbody tr")).to_contain_text(["refunds"])
            await expect(page.locator("#environment")).to_have_value("acme/shop/staging")
            await page.get_by_role("button", name="Log out").click()
            await expect(page.get_by_role("link", name="Log in with 127.0.0.1")).to_be_visible()


async def log_in_through_provider(page: Page, url: str) -> None:
    """Follow the login page to the provider, and fill in its pages: name, password, consent."""
    await page.goto(url)
    await page.get_by_role("link", name="Log in with 127.0.0.1").click()
    await page.locator("input[name=login]").fill("alice")
    await page.locator("input[name=login]").press("Enter")
    await page.locator("input[name=password]").fill(PASSWORD)
    await page.locator("input[name=password]").press("Enter")
    await page.locator("button[value=accept]").click()
    await page.wait_for_url(url)
