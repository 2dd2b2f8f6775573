"""A broker whose console is read-only: sessions and browsers only read, programs do what they may."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from penstock.config import Settings
from tests.integration.api.broker_tokens import ALL_SCOPES, GuardedBroker, run_guarded_broker
from tests.integration.api.calls import assert_problem
from tests.integration.api.http.raw_connections import run_server

BROWSER = {"Sec-Fetch-Site": "same-origin", "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"}
OLD_BROWSER = {"User-Agent": BROWSER["User-Agent"], "Origin": "http://localhost"}
"""A browser that reaches the broker over plain HTTP sends no Sec-Fetch-Site."""
PUSH = {"items": [{"queue": "orders", "payload": 1}]}
CHANGES = [
    ("POST", "/api/v1/push", PUSH),
    ("GET", "/api/v1/pop/queue/orders", None),
    ("POST", "/api/v1/configure", {"queue": "orders", "options": {}}),
    ("POST", "/api/v1/tokens", {"name": "other", "scopes": ["read"]}),
    ("DELETE", "/api/v1/resources/queues/orders", None),
]


@pytest_asyncio.fixture(scope="module")
async def guarded_broker(shared_settings: Settings) -> AsyncIterator[GuardedBroker]:
    async with run_guarded_broker(shared_settings.model_copy(update={"console": "read-only"})) as broker:
        yield broker


async def log_in(client: httpx.AsyncClient, secret: str) -> dict[str, object]:
    """Log in; the client sends the session's cookie and CSRF token from now on. Returns the session."""
    response = await client.post("/api/v1/session", json={"token": secret})
    assert response.status_code == 201, response.text
    session: dict[str, object] = response.json()
    client.headers["X-CSRF-Token"] = str(session["csrfToken"])
    return session


async def assert_only_reads(client: httpx.AsyncClient) -> None:
    """Assert that every change is refused and that reading works."""
    for method, path, body in CHANGES:
        refused = await client.request(method, path, json=body)
        assert "PENSTOCK_CONSOLE" in assert_problem(refused, 403, "forbidden"), path
    assert (await client.get("/api/v1/resources/queues")).status_code == 200
    rule = {"name": "r", "type": "EXPIRES_SOON", "withinHours": 1}
    tested = await client.post("/api/v1/alert-rules/test", json={"rule": rule})
    assert_problem(tested, 422, "invalid_request")  # allowed: this type cannot be tested


async def test_a_session_only_reads(guarded_broker: GuardedBroker) -> None:
    secret = await guarded_broker.secret(ALL_SCOPES)
    async with guarded_broker.client() as client:
        created = await log_in(client, secret)
        shown = (await client.get("/api/v1/session")).json()
        for session in (created, shown):
            assert session["readOnly"] is True
            assert session["scopes"] == ["read", "read:payload"]
        await assert_only_reads(client)
        assert (await client.delete("/api/v1/session")).status_code == 204


async def test_a_session_gets_no_scope_that_its_token_lacks(guarded_broker: GuardedBroker) -> None:
    secret = await guarded_broker.secret(["read", "operate"])
    async with guarded_broker.client() as client:
        assert (await log_in(client, secret))["scopes"] == ["read"]


async def test_a_token_keeps_its_scopes_also_in_a_browser(guarded_broker: GuardedBroker) -> None:
    secret = await guarded_broker.secret(ALL_SCOPES)
    async with guarded_broker.client(secret) as client:
        client.headers.update(BROWSER)
        session = (await client.get("/api/v1/session")).json()
        assert (session["readOnly"], session["scopes"]) == (False, ALL_SCOPES)
        assert (await client.post("/api/v1/push", json=PUSH)).status_code == 201


async def test_without_authentication_browsers_only_read_and_programs_write(
    shared_settings: Settings,
) -> None:
    settings = shared_settings.model_copy(update={"console": "read-only"})
    async with run_server(settings) as server:
        url = f"http://localhost:{server.port}"
        async with httpx.AsyncClient(base_url=url, headers={"Content-Type": "application/json"}) as program:
            assert (await program.post("/api/v1/push", json=PUSH)).status_code == 201
            assert (await program.get("/api/v1/session")).json()["readOnly"] is False
        for headers in (BROWSER, {**OLD_BROWSER, "Origin": url}):
            async with httpx.AsyncClient(base_url=url, headers=headers) as browser:
                session = (await browser.get("/api/v1/session")).json()
                assert (session["readOnly"], session["scopes"]) == (True, ["read", "read:payload"])
                await assert_only_reads(browser)


@pytest.mark.parametrize("headers", [{}, BROWSER])
async def test_a_console_that_is_on_has_all_scopes(
    client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    session = (await client.get("/api/v1/session", headers=headers)).json()
    assert (session["readOnly"], session["scopes"]) == (False, ALL_SCOPES)
