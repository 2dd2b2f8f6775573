"""Login to the console at a real OpenID Connect provider, and JWTs of that provider for the API."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import httpx
import pytest
import pytest_asyncio

from penstock.access.people.jwt_verifier import LEEWAY_S
from penstock.access.people.login_attempt import new_attempt
from penstock.access.sessions.login_limits import MAX_ATTEMPTS
from penstock.config import Settings
from penstock.durable.pool import Database
from tests.integration.access.people.identity_providers import (
    CLIENT_ID,
    CLIENT_SECRET,
    IdentityProviderServer,
    log_in_at_provider,
    run_identity_provider,
)
from tests.integration.api.broker_tokens import (
    GuardedBroker,
    bearer,
    create_other_environment,
    run_guarded_broker,
)
from tests.integration.api.calls import assert_problem
from tests.integration.api.routes.test_console_session import COOKIE, SESSION, cookie_in
from tests.unit.access.people.signing_keys import AUDIENCE, ISSUER, P256, jwks, sign, valid_claims
from tests.waiting import wait_until_async

PUBLIC_URL = "http://localhost:7480"
LOGIN_COOKIE = "penstock_login"
HTML = {"Accept": "text/html,application/xhtml+xml"}
ROLES = "operators=operator,staff=payload-viewer@acme/shop/staging,staff=admin@no/such/environment"


@pytest_asyncio.fixture(scope="module")
async def provider() -> AsyncIterator[IdentityProviderServer]:
    async with run_identity_provider(f"{PUBLIC_URL}/auth/callback") as server:
        yield server


@pytest_asyncio.fixture
async def broker(
    settings: Settings, database: Database, provider: IdentityProviderServer
) -> AsyncIterator[GuardedBroker]:
    await create_other_environment(database)
    oidc_settings = {
        "authentication": "required",
        "public_url": PUBLIC_URL,
        "oidc_issuer": provider.issuer,
        "oidc_client_id": CLIENT_ID,
        "oidc_client_secret": CLIENT_SECRET,
        "oidc_roles": ROLES,
        "jwt_audience": CLIENT_ID,
    }
    async with run_guarded_broker(settings.model_copy(update=oidc_settings)) as guarded_broker:
        yield guarded_broker


@pytest_asyncio.fixture
async def browser(broker: GuardedBroker) -> AsyncIterator[httpx.AsyncClient]:
    async with broker.client() as client:
        yield client


async def reach_callback(browser: httpx.AsyncClient, user: str = "alice", next_path: str = "/") -> str:
    """Start a login and log in at the provider; return the path of the callback."""
    started = await browser.get("/auth/login", params={"next": next_path})
    assert started.status_code == 303, started.text
    target = urlsplit(await log_in_at_provider(started.headers["location"], user))
    assert f"{target.scheme}://{target.netloc}" == PUBLIC_URL
    return f"{target.path}?{target.query}"


async def test_a_person_logs_in_works_and_logs_out(browser: httpx.AsyncClient) -> None:
    before = (await browser.get(SESSION)).json()
    assert before["login"] == {"oidc": "127.0.0.1", "token": True}
    finished = await browser.get(await reach_callback(browser, next_path="/?queue=orders"))
    assert (finished.status_code, finished.headers["location"]) == (303, "/?queue=orders")
    session = (await browser.get(SESSION)).json()
    assert (session["subject"], session["name"], session["role"]) == ("user:alice", "alice", "operator")
    assert session["environment"] == "default/default/default"
    assert session["environments"] == ["default/default/default", "acme/shop/staging"]
    assert session["scopes"] == ["read", "read:payload", "operate"]
    assert (await browser.get("/api/v1/status")).status_code == 200
    csrf = {"X-CSRF-Token": session["csrfToken"]}
    refused = await browser.post("/api/v1/configure", json={"queue": "orders"}, headers=csrf)
    assert_problem(refused, 403, "forbidden")
    assert (await browser.delete(SESSION, headers=csrf)).status_code == 204
    assert_problem(await browser.get("/api/v1/status"), 401, "unauthorized")


async def test_logins_are_in_the_audit_log(browser: httpx.AsyncClient, database: Database) -> None:
    await browser.get(await reach_callback(browser))
    failed = await browser.get("/auth/callback", params={"code": "stolen", "state": "forged"})
    assert_problem(failed, 400, "login_failed")
    rows = await database.fetch("SELECT * FROM audit_entries ORDER BY id")
    assert [(row["action"], row["subject"], row["status"], row["denied"]) for row in rows] == [
        ("GET /auth/callback", "user:alice", 303, False),
        ("GET /auth/callback", "", 400, True),
    ]
    assert {row["object"] for row in rows} == {"{}"}
    assert rows[1]["request_id"] == failed.json()["requestId"]


async def test_a_person_selects_one_of_their_environments(browser: httpx.AsyncClient) -> None:
    await browser.get(await reach_callback(browser))
    selected = {"X-Penstock-Environment": "acme/shop/staging"}
    session = (await browser.get(SESSION, headers=selected)).json()
    assert (session["environment"], session["role"]) == ("acme/shop/staging", "payload-viewer")
    for name in ("no/such/environment", "acme/shop/production", "acme", "a/b/c/d"):
        response = await browser.get("/api/v1/status", headers={"X-Penstock-Environment": name})
        assert_problem(response, 404, "unknown_environment")


async def test_a_person_without_a_role_in_the_default_environment_starts_in_one_that_exists(
    browser: httpx.AsyncClient,
) -> None:
    await browser.get(await reach_callback(browser, "bob"))
    session = (await browser.get(SESSION)).json()
    assert (session["environment"], session["environments"]) == ("acme/shop/staging", ["acme/shop/staging"])
    details = []
    for name in ("default/default/default", "no/such/environment", "not/even/there"):
        response = await browser.get("/api/v1/status", headers={"X-Penstock-Environment": name})
        details.append(assert_problem(response, 404, "unknown_environment").replace(name, "NAME"))
    assert len(set(details)) == 1, "the text must not tell which environments exist"


async def test_the_cookies_of_a_login(browser: httpx.AsyncClient) -> None:
    started = await browser.get("/auth/login")
    login_cookie = cookie_in(started, LOGIN_COOKIE)
    assert (login_cookie["httponly"], login_cookie["samesite"]) == (True, "lax")
    assert (login_cookie["path"], login_cookie["max-age"]) == ("/auth", "600")
    state = parse_qs(urlsplit(started.headers["location"]).query)["state"][0]
    assert state not in login_cookie.value
    finished = await browser.get(await reach_callback(browser))
    assert cookie_in(finished, LOGIN_COOKIE)["max-age"] == "0"
    assert (cookie_in(finished)["httponly"], cookie_in(finished)["samesite"]) == (True, "lax")


async def test_a_login_replaces_the_session_of_the_browser(
    broker: GuardedBroker, browser: httpx.AsyncClient
) -> None:
    first = cookie_in(await browser.get(await reach_callback(browser))).value
    second = cookie_in(await browser.get(await reach_callback(browser, "bob"))).value
    assert first != second
    async with broker.client(cookies={COOKIE: first}) as other:
        assert_problem(await other.get("/api/v1/status"), 401, "unauthorized")


async def test_a_callback_in_another_browser_is_refused(
    broker: GuardedBroker, browser: httpx.AsyncClient
) -> None:
    callback = await reach_callback(browser)
    async with broker.client() as other:
        assert_problem(await other.get(callback), 400, "login_failed")
        await other.get("/auth/login")
        response = await other.get(callback)
        assert_problem(response, 400, "login_failed")
        assert COOKIE not in response.headers.get("set-cookie", "")


async def test_a_callback_is_accepted_once(browser: httpx.AsyncClient) -> None:
    callback = await reach_callback(browser)
    login_cookie = {"Cookie": f"{LOGIN_COOKIE}={browser.cookies[LOGIN_COOKIE]}"}
    assert (await browser.get(callback)).status_code == 303
    assert_problem(await browser.get(callback), 400, "login_failed")
    assert_problem(await browser.get(callback, headers=login_cookie), 400, "login_failed")


@pytest.mark.parametrize(
    "next_path", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"]
)
async def test_a_login_leads_to_no_other_site(browser: httpx.AsyncClient, next_path: str) -> None:
    finished = await browser.get(await reach_callback(browser, next_path=next_path))
    assert finished.headers["location"] == "/"


async def test_people_get_a_page_and_programs_a_problem(browser: httpx.AsyncClient) -> None:
    query = urlencode({"state": "x", "error": "<script>alert(1)</script>"})
    page = await browser.get(f"/auth/callback?{query}", headers=HTML)
    assert page.status_code == 400
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "Login failed" in page.text
    assert "<script" not in page.text
    callback = await reach_callback(browser, "mallory")
    page = await browser.get(callback, headers=HTML)
    assert page.status_code == 403
    assert "mallory is logged in at the identity provider, but has no role here" in page.text


async def test_text_of_the_provider_is_no_html(browser: httpx.AsyncClient) -> None:
    callback = urlsplit(await reach_callback(browser))
    parameters = {name: values[0] for name, values in parse_qs(callback.query).items()}
    parameters |= {"error": "access_denied", "error_description": "<script>alert(1)</script>"}
    page = await browser.get(f"{callback.path}?{urlencode(parameters)}", headers=HTML)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.text
    assert "<script" not in page.text


async def test_an_address_may_not_start_logins_without_end(browser: httpx.AsyncClient) -> None:
    responses = [await browser.get("/auth/login") for _ in range(3 * MAX_ATTEMPTS)]
    assert {response.status_code for response in responses} == {303, 429}
    assert_problem(responses[-1], 429, "too_many_logins")


async def test_without_a_provider_there_is_no_login_page(settings: Settings) -> None:
    async with run_guarded_broker(settings) as broker, broker.client() as browser:
        assert_problem(await browser.get("/auth/login"), 404, "login_disabled")
        assert_problem(await browser.get("/auth/callback?code=x"), 404, "login_disabled")


async def test_a_jwt_of_the_provider_opens_the_api(
    browser: httpx.AsyncClient, provider: IdentityProviderServer
) -> None:
    access_token = await fetch_access_token(provider, "alice")
    headers = bearer(access_token)
    session = (await browser.get(SESSION, headers=headers)).json()
    assert (session["subject"], session["role"], session["csrfToken"]) == ("user:alice", "operator", None)
    assert session["environments"] == ["default/default/default", "acme/shop/staging"]
    assert (await browser.get("/api/v1/status", headers=headers)).status_code == 200
    staging = {**headers, "X-Penstock-Environment": "acme/shop/staging"}
    assert (await browser.get("/api/v1/status", headers=staging)).status_code == 200
    push = {"items": [{"queue": "orders", "payload": 1}]}
    assert_problem(await browser.post("/api/v1/push", json=push, headers=headers), 403, "forbidden")
    head, payload, signature = access_token.split(".")
    changed = bearer(f"{head}.{payload}.{signature[:-4]}AAAA")
    assert_problem(await browser.get("/api/v1/status", headers=changed), 401, "unauthorized")


async def fetch_access_token(provider: IdentityProviderServer, user: str) -> str:
    """Log in as another program of the same client does; return its access token, a JWT."""
    attempt = new_attempt("/")
    redirect_uri = f"{PUBLIC_URL}/auth/callback"
    parameters = {
        "response_type": "code",
        "client_id": CLIENT_ID,
        "redirect_uri": redirect_uri,
        "scope": "openid profile groups",
        "nonce": attempt.nonce,
        "code_challenge": attempt.challenge,
        "code_challenge_method": "S256",
    }
    callback = await log_in_at_provider(f"{provider.issuer}/oauth/authorize?{urlencode(parameters)}", user)
    form = {
        "grant_type": "authorization_code",
        "code": parse_qs(urlsplit(callback).query)["code"][0],
        "redirect_uri": redirect_uri,
        "code_verifier": attempt.verifier,
    }
    async with httpx.AsyncClient(auth=(CLIENT_ID, quote(CLIENT_SECRET))) as client:
        response = await client.post(f"{provider.issuer}/oauth/token", data=form)
    token: str = response.json()["access_token"]
    return token


async def test_jwts_work_with_a_file_of_keys_on_hot_and_other_routes(
    settings: Settings, tmp_path: Path
) -> None:
    key_file = tmp_path / "keys.json"
    key_file.write_text(json.dumps(jwks(P256)))
    jwt_settings = {
        "jwks": str(key_file),
        "jwt_issuer": ISSUER,
        "jwt_audience": AUDIENCE,
        "oidc_roles": "producers=admin,*=viewer",
    }
    claims = valid_claims(exp=4_000_000_000, nbf=None, iat=None, groups=["producers"])
    producer = bearer(sign(claims, P256, "ES256"))
    viewer = bearer(sign({**claims, "groups": []}, P256, "ES256"))
    expired = bearer(sign({**claims, "exp": 1_000_000_000}, P256, "ES256"))
    push = {"items": [{"queue": "orders", "payload": 1}]}
    async with (
        run_guarded_broker(settings.model_copy(update=jwt_settings)) as broker,
        broker.client() as client,
    ):
        for _ in range(3):  # the first request verifies the JWT, the others find it in memory
            assert (await client.post("/api/v1/push", json=push, headers=producer)).status_code == 201
        assert (await client.get("/api/v1/resources/queues/orders", headers=viewer)).status_code == 200
        assert_problem(await client.post("/api/v1/push", json=push, headers=viewer), 403, "forbidden")
        assert_problem(await client.post("/api/v1/push", json=push, headers=expired), 401, "unauthorized")
        other_environment = {**producer, "X-Penstock-Environment": "acme/shop/staging"}
        response = await client.post("/api/v1/push", json=push, headers=other_environment)
        assert_problem(response, 404, "unknown_environment")


async def test_a_jwt_ends_also_on_hot_routes_whose_heads_are_remembered(
    settings: Settings, database: Database, tmp_path: Path
) -> None:
    key_file = tmp_path / "keys.json"
    key_file.write_text(json.dumps(jwks(P256)))
    await create_other_environment(database)
    jwt_settings = {
        "jwks": str(key_file),
        "jwt_issuer": ISSUER,
        "jwt_audience": AUDIENCE,
        "oidc_roles": "*=admin@acme/shop/staging,ops=admin",
    }
    push = {"items": [{"queue": "orders", "payload": 1}]}
    async with (
        run_guarded_broker(settings.model_copy(update=jwt_settings)) as broker,
        broker.client() as client,
    ):

        async def push_status(token: str) -> int:
            return (await client.post("/api/v1/push", json=push, headers=bearer(token))).status_code

        claims = valid_claims(exp=4_000_000_000, nbf=None, iat=None)
        in_staging = sign({**claims, "groups": []}, P256, "ES256")
        for _ in range(3):
            assert await push_status(in_staging) == 201
        fields = {b"authorization": f"Bearer {in_staging}".encode()}
        caller = broker.services.authentication.find_caller(fields)
        assert caller is not None
        await database.fetch(
            "UPDATE environments SET deletion_requested_at = now() WHERE organization = 'acme'"
        )
        await database.fetch("SELECT raise_access_version_v1()")

        async def environment_is_gone() -> bool:
            return not caller.active and await push_status(in_staging) == 404

        await wait_until_async(environment_is_gone, 2, "the environment ends")
        expiring = sign({**claims, "exp": int(time.time()) - LEEWAY_S + 3}, P256, "ES256")
        assert await push_status(expiring) == 201

        async def has_expired() -> bool:
            return await push_status(expiring) == 401

        await wait_until_async(has_expired, 10, "the JWT expires")
