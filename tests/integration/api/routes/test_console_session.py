"""Sessions of the console: login with a token, cookie, CSRF token, logout, and their end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http.cookies import Morsel, SimpleCookie
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from penstock.access.sessions.login_limits import MAX_ATTEMPTS
from penstock.access.token_service import NewToken
from penstock.caller import LOCAL_CALLER
from penstock.config import Settings
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from tests.certificates import create_certificate, trusting_context
from tests.integration.api.broker_tokens import (
    ALL_SCOPES,
    OTHER_ENVIRONMENT,
    GuardedBroker,
    bearer,
    create_other_environment,
    run_guarded_broker,
)
from tests.integration.api.calls import assert_problem
from tests.integration.api.http.raw_connections import run_server
from tests.integration.api.test_declared_access import GUARDED
from tests.waiting import wait_until_async

SESSION = "/api/v1/session"
COOKIE = "penstock_session"
QUEUE = {"queue": "orders", "options": {}}


@pytest_asyncio.fixture
async def broker(settings: Settings, database: Database) -> AsyncIterator[GuardedBroker]:
    await create_other_environment(database)
    async with run_guarded_broker(settings) as guarded_broker:
        yield guarded_broker


@pytest_asyncio.fixture
async def browser(broker: GuardedBroker) -> AsyncIterator[httpx.AsyncClient]:
    """A client that keeps cookies."""
    async with broker.client() as client:
        yield client


async def log_in(browser: httpx.AsyncClient, secret: str) -> dict[str, Any]:
    response = await browser.post(SESSION, json={"token": secret})
    assert response.status_code == 201, response.text
    description: dict[str, Any] = response.json()
    return description


def cookie_in(response: httpx.Response, name: str = COOKIE) -> Morsel[str]:
    cookies = SimpleCookie()
    for header in response.headers.get_list("set-cookie"):
        cookies.load(header)
    cookie: Morsel[str] = cookies[name]
    return cookie


async def test_a_session_may_do_what_its_token_may(broker: GuardedBroker, browser: httpx.AsyncClient) -> None:
    assert_problem(await browser.get("/api/v1/status"), 401, "unauthorized")
    secret = await broker.create(NewToken(name="ops", scopes=["read", "configure"]), OTHER_ENVIRONMENT)
    session = await log_in(browser, secret)
    assert session["subject"] == "token:ops"
    assert session["environment"] == "acme/shop/staging"
    assert session["environments"] == ["acme/shop/staging"]
    assert session["scopes"] == ["read", "configure"]
    assert session["csrfToken"]
    assert (await browser.get(SESSION)).json() == session
    assert (await browser.get("/api/v1/status")).status_code == 200
    headers = {"X-CSRF-Token": session["csrfToken"]}
    assert (await browser.post("/api/v1/configure", json=QUEUE, headers=headers)).status_code == 200
    refused = await browser.post("/api/v1/push", json={"items": []}, headers=headers)
    assert_problem(refused, 403, "forbidden")


async def test_without_a_login_the_session_says_how_to_log_in(browser: httpx.AsyncClient) -> None:
    session = (await browser.get(SESSION)).json()
    assert session["authenticated"] is False
    assert session["login"] == {"oidc": None, "token": True}
    assert (session["subject"], session["csrfToken"], session["scopes"]) == (None, None, [])


async def test_a_program_sees_who_it_is(broker: GuardedBroker, browser: httpx.AsyncClient) -> None:
    secret = await broker.create(NewToken(name="worker", scopes=["consume"]))
    session = (await browser.get(SESSION, headers=bearer(secret))).json()
    assert (session["authenticated"], session["subject"], session["csrfToken"]) == (
        True,
        "token:worker",
        None,
    )


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"token": "pk_" + "x" * 43}, 401, "unauthorized"),
        ({"token": ""}, 401, "unauthorized"),
        ({"token": "pk_é"}, 401, "unauthorized"),
        ({"token": 5}, 422, "invalid_request"),
        ({}, 422, "invalid_request"),
        ({"token": "pk_x", "admin": True}, 422, "invalid_request"),
    ],
)
async def test_a_login_without_a_valid_token_sets_no_cookie(
    browser: httpx.AsyncClient, body: dict[str, Any], status: int, code: str
) -> None:
    response = await browser.post(SESSION, json=body)
    assert_problem(response, status, code)
    assert "set-cookie" not in response.headers


async def test_the_cookie_is_kept_from_scripts_and_from_other_sites(
    broker: GuardedBroker, browser: httpx.AsyncClient
) -> None:
    response = await browser.post(SESSION, json={"token": await broker.secret(["read"])})
    cookie = cookie_in(response)
    assert cookie["httponly"] is True
    assert cookie["samesite"] == "lax"
    assert cookie["path"] == "/"
    assert cookie["domain"] == ""
    assert not cookie["secure"], "the browser would not send it over http://"
    assert 0 < int(cookie["max-age"]) <= 12 * 3600
    assert len(cookie.value) == 43


async def test_behind_tls_the_cookie_is_never_sent_in_plain_text(settings: Settings) -> None:
    behind_proxy = settings.model_copy(update={"trusted_proxies": "127.0.0.0/8,::1"})
    async with run_guarded_broker(behind_proxy) as broker, broker.client() as browser:
        body = {"token": await broker.secret(["read"])}
        headers = {"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https"}
        assert cookie_in(await browser.post(SESSION, json=body, headers=headers))["secure"] is True
        headers["X-Forwarded-Proto"] = "http"
        assert not cookie_in(await browser.post(SESSION, json=body, headers=headers))["secure"]


async def test_with_tls_of_its_own_the_broker_marks_the_cookie_too(
    settings: Settings, tmp_path: Path
) -> None:
    certificate = create_certificate(tmp_path)
    files = {"tls_cert": str(certificate[0]), "tls_key": str(certificate[1])}
    async with run_guarded_broker(settings.model_copy(update=files)) as broker:
        body = {"token": await broker.secret(["read"])}
        url = f"https://localhost:{broker.server.port}{SESSION}"
        async with httpx.AsyncClient(verify=trusting_context(certificate)) as browser:
            response = await browser.post(url, json=body)
    assert cookie_in(response)["secure"] is True


async def test_a_sender_that_is_no_trusted_proxy_cannot_claim_tls(
    broker: GuardedBroker, browser: httpx.AsyncClient
) -> None:
    headers = {"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https"}
    response = await browser.post(SESSION, json={"token": await broker.secret(["read"])}, headers=headers)
    assert not cookie_in(response)["secure"]


async def test_requests_that_change_something_need_the_csrf_token(
    broker: GuardedBroker, browser: httpx.AsyncClient
) -> None:
    first = await log_in(browser, await broker.secret(ALL_SCOPES))
    browser.cookies.clear()
    session = await log_in(browser, await broker.secret(ALL_SCOPES))
    for wrong in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": "x"}, {"X-CSRF-Token": first["csrfToken"]}):
        response = await browser.post("/api/v1/configure", json=QUEUE, headers=wrong)
        assert_problem(response, 403, "invalid_csrf_token")
        assert_problem(await browser.delete(SESSION, headers=wrong), 403, "invalid_csrf_token")
        pop = await browser.get("/api/v1/pop/queue/orders", headers=wrong)
        assert_problem(pop, 403, "invalid_csrf_token")
        push = await browser.post("/api/v1/push", json={"items": []}, headers=wrong)
        assert_problem(push, 403, "invalid_csrf_token")
    resources = await browser.get("/api/v1/resources/queues")
    assert resources.json()["queues"] == []
    headers = {"X-CSRF-Token": session["csrfToken"]}
    assert (await browser.post("/api/v1/configure", json=QUEUE, headers=headers)).status_code == 200
    assert (await browser.get("/api/v1/pop/queue/orders", headers=headers)).status_code == 204


async def test_no_operation_that_changes_something_works_without_the_csrf_token(
    broker: GuardedBroker, browser: httpx.AsyncClient
) -> None:
    await log_in(browser, await broker.secret(ALL_SCOPES))
    codes = {}
    for operation in GUARDED:
        if operation.method != "GET" or operation.path.startswith("/api/v1/pop"):
            response = await operation.send(browser, None)
            codes[operation.method, operation.path] = response.json()["code"]
    assert {operation: code for operation, code in codes.items() if code != "invalid_csrf_token"} == {}
    assert len(codes) > 50


async def test_a_bearer_token_counts_more_than_a_cookie_and_needs_no_csrf_token(
    broker: GuardedBroker, browser: httpx.AsyncClient
) -> None:
    await log_in(browser, await broker.secret(["read"]))
    headers = bearer(await broker.secret(["configure"]))
    assert (await browser.post("/api/v1/configure", json=QUEUE, headers=headers)).status_code == 200
    assert_problem(await browser.get("/api/v1/status", headers=bearer("pk_" + "x" * 43)), 401, "unauthorized")


async def test_a_login_replaces_the_session_of_the_browser(broker: GuardedBroker) -> None:
    """A cookie that an attacker put into the browser must not become the session of the person."""
    body = {"token": await broker.secret(["read"])}
    cookies = ["chosen-by-an-attacker"]
    for _ in range(2):
        async with broker.client(cookies={COOKIE: cookies[-1]}) as browser:
            response = await browser.post(SESSION, json=body)
        cookies.append(cookie_in(response).value)
    statuses = []
    for cookie in cookies:
        async with broker.client(cookies={COOKIE: cookie}) as browser:
            statuses.append((await browser.get("/api/v1/status")).status_code)
    assert statuses == [401, 401, 200]


async def test_a_logout_ends_the_session_on_every_broker(
    broker: GuardedBroker, browser: httpx.AsyncClient, settings: Settings
) -> None:
    session = await log_in(browser, await broker.secret(["read"]))
    cookie = {"Cookie": f"{COOKIE}={browser.cookies[COOKIE]}"}
    cookies = dict(browser.cookies)
    async with run_guarded_broker(settings) as other, other.client(cookies=cookies) as other_browser:
        assert (await other_browser.get("/api/v1/status")).status_code == 200
        response = await browser.delete(SESSION, headers={"X-CSRF-Token": session["csrfToken"]})
        assert response.status_code == 204
        assert (cookie_in(response).value, cookie_in(response)["max-age"]) == ("", "0")

        async def has_ended() -> bool:
            return (await other_browser.get("/api/v1/status")).status_code == 401

        await wait_until_async(has_ended, 2, "the other broker ends the session")
    assert_problem(await browser.get("/api/v1/status", headers=cookie), 401, "unauthorized")
    assert (await browser.get(SESSION, headers=cookie)).json()["authenticated"] is False
    assert (await browser.delete(SESSION)).status_code == 204, "a logout may be repeated"


async def test_the_revocation_of_the_token_ends_its_sessions(
    broker: GuardedBroker, browser: httpx.AsyncClient
) -> None:
    await log_in(browser, await broker.create(NewToken(name="short", scopes=["read"])))
    tokens = broker.services.access_tokens
    [token] = [row for row in await tokens.list_tokens(DEFAULT_SCOPE, limit=10) if row.row.name == "short"]
    assert (await browser.get("/api/v1/status")).status_code == 200
    await tokens.revoke(LOCAL_CALLER, token.row.id)

    async def has_ended() -> bool:
        return (await browser.get("/api/v1/status")).status_code == 401

    await wait_until_async(has_ended, 2, "the session ends with its token")


async def test_a_session_ends_with_the_time_of_its_token_and_of_the_setting(settings: Settings) -> None:
    short = settings.model_copy(update={"session_hours": 0.5 / 3600})
    async with run_guarded_broker(short) as broker, broker.client() as browser:
        response = await browser.post(SESSION, json={"token": await broker.secret(["read"])})
        cookie = {"Cookie": f"{COOKIE}={cookie_in(response).value}"}

        async def has_ended() -> bool:
            return (await browser.get("/api/v1/status", headers=cookie)).status_code == 401

        await wait_until_async(has_ended, 5, "the session expires")
    async with run_guarded_broker(settings) as broker, broker.client() as browser:
        secret = await broker.create(NewToken(name="an hour", scopes=["read"], expires_in_s=3600))
        response = await browser.post(SESSION, json={"token": secret})
        assert int(cookie_in(response)["max-age"]) <= 3600


async def test_an_ended_session_does_not_lock_a_broker_that_needs_no_login(settings: Settings) -> None:
    """Browsers send cookies to every port of a host, so the cookie may be of another broker."""
    open_settings = settings.model_copy(update={"authentication": "none"})
    async with run_server(open_settings) as server, GuardedBroker(server).client() as browser:
        stale = {"Cookie": f"theme=dark; {COOKIE}=of-another-broker"}
        assert_problem(await browser.get("/api/v1/status", headers=stale), 401, "unauthorized")
        response = await browser.get(SESSION, headers=stale)
        assert (response.json()["authenticated"], response.json()["subject"]) == (True, "local")
        assert cookie_in(response)["max-age"] == "0"


async def test_the_cookie_and_the_csrf_token_are_not_stored(
    broker: GuardedBroker, browser: httpx.AsyncClient, database: Database
) -> None:
    await log_in(browser, await broker.secret(["read"]))
    cookie = browser.cookies[COOKIE]
    rows = await database.fetch("SELECT * FROM access_sessions")
    assert len(rows) == 1
    assert cookie not in str(rows)
    assert cookie.encode() not in bytes(rows[0]["hash"])


async def test_an_address_may_not_try_tokens_without_end(browser: httpx.AsyncClient) -> None:
    statuses = []
    for _ in range(3 * MAX_ATTEMPTS):
        response = await browser.post(SESSION, json={"token": "pk_guess"})
        statuses.append(response.status_code)
    assert statuses[:MAX_ATTEMPTS] == [401] * MAX_ATTEMPTS
    assert 429 in statuses
    assert_problem(response, 429, "too_many_logins")
    assert int(response.headers["retry-after"]) >= 1


async def test_sessions_that_are_known_work_while_postgresql_is_away(
    broker: GuardedBroker, browser: httpx.AsyncClient
) -> None:
    await log_in(browser, await broker.secret(["read"]))
    await broker.services.broker.database.close()
    session = await browser.get(SESSION)
    assert (session.status_code, session.json()["authenticated"]) == (200, True)
