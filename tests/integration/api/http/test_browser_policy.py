"""The console and the API page of a real broker in Chromium: the browser reports nothing."""

from __future__ import annotations

import json
import re

import httpx
import pytest
from playwright.async_api import expect

from penstock.access.token_service import NewToken
from penstock.caller import LOCAL_CALLER
from penstock.config import Settings
from tests.browser import open_page, report_policy_violations
from tests.integration.api.calls import app_services
from tests.integration.api.http.raw_connections import RunningServer, run_server

pytestmark = pytest.mark.browser
TIMEOUT_MS = 30_000
LOG_IN = """
async (token) => {
  const headers = { "Content-Type": "application/json" };
  const body = JSON.stringify({ token });
  return (await fetch("/api/v1/session", { method: "POST", headers, body })).status;
}
"""
ADD_SCRIPT = """
() => {
  const script = document.createElement("script");
  script.text = "window.attacked = true";
  document.body.append(script);
}
"""


async def test_the_console_works_under_its_policy(server: RunningServer) -> None:
    url = f"http://127.0.0.1:{server.port}"
    async with httpx.AsyncClient(base_url=url) as client:
        item = {"queue": "orders", "payload": 1}
        assert (await client.post("/api/v1/push", json={"items": [item]})).status_code == 201
    reports: list[str] = []
    async with open_page() as page:
        report_policy_violations(page, reports)
        page.on("pageerror", lambda error: reports.append(str(error)))
        await page.goto(f"{url}/console/queues?view=charts")
        await page.locator("article[data-queue=orders] h2 a").click(timeout=TIMEOUT_MS)
        await expect(page.locator(".answers")).to_be_visible(timeout=TIMEOUT_MS)
    assert reports == []


async def test_the_api_page_sends_a_request_under_its_policy(server: RunningServer) -> None:
    reports: list[str] = []
    async with open_page() as page:
        report_policy_violations(page, reports)
        page.on("pageerror", lambda error: reports.append(str(error)))
        await page.goto(f"http://127.0.0.1:{server.port}/docs")
        operation = page.locator(".opblock", has_text="/health/live")
        await operation.locator(".opblock-summary-control").first.click(timeout=TIMEOUT_MS)
        await operation.get_by_role("button", name="Try it out").click(timeout=TIMEOUT_MS)
        await operation.get_by_role("button", name="Execute").click()
        body = operation.locator(".live-responses-table .response-col_description pre").first
        await expect(body).to_have_text(re.compile('"status"'), timeout=TIMEOUT_MS)
        assert json.loads(await body.inner_text()) == {"status": "ok"}
    assert reports == []


async def test_the_api_page_changes_something_with_the_session_of_the_console(settings: Settings) -> None:
    reports: list[str] = []
    async with (
        run_server(settings.model_copy(update={"authentication": "required"})) as server,
        open_page() as page,
    ):
        tokens = app_services(server.app).access_tokens
        issued = await tokens.create(LOCAL_CALLER, NewToken(name="operator", scopes=["read", "produce"]))
        report_policy_violations(page, reports)
        await page.goto(f"http://127.0.0.1:{server.port}/docs")
        assert await page.evaluate(LOG_IN, issued.secret) == 201
        operation = page.locator(".opblock-delete", has_text="/api/v1/session")
        await operation.locator(".opblock-summary-control").first.click(timeout=TIMEOUT_MS)
        await operation.get_by_role("button", name="Try it out").click(timeout=TIMEOUT_MS)
        await operation.get_by_role("button", name="Execute").click()
        status = operation.locator(".live-responses-table .response-col_status").nth(1)
        await expect(status).to_have_text(re.compile("204"), timeout=TIMEOUT_MS)
    assert reports == []


async def test_a_script_in_the_page_is_blocked(server: RunningServer) -> None:
    reports: list[str] = []
    async with open_page() as page:
        report_policy_violations(page, reports)
        await page.goto(f"http://127.0.0.1:{server.port}/")
        await page.evaluate(ADD_SCRIPT)
        assert await page.evaluate("window.attacked") is None
    assert any("script-src 'self'" in report for report in reports)
