"""Logins at a real OpenID Connect provider, and attacks on them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

import pytest
import pytest_asyncio

from penstock.access.people.identity_provider import IdentityProvider
from penstock.access.people.login_attempt import LoginCookie
from penstock.access.people.oidc_login import OidcLogin
from penstock.config import Settings
from penstock.errors import Forbidden, LoginFailed, ProviderUnavailable
from tests.integration.access.people.identity_providers import (
    CLIENT_ID,
    CLIENT_SECRET,
    IdentityProviderServer,
    log_in_at_provider,
    run_identity_provider,
)
from tests.integration.alerts.delivery.http_receiver import http_response, receive_http

BASE_URL = "http://localhost:7480"


@pytest_asyncio.fixture(scope="module")
async def provider() -> AsyncIterator[IdentityProviderServer]:
    async with run_identity_provider(f"{BASE_URL}/auth/callback") as server:
        yield server


def create_login(issuer: str, **changes: str) -> OidcLogin:
    settings = {
        "authentication": "required",
        "oidc_issuer": issuer,
        "oidc_client_id": CLIENT_ID,
        "oidc_client_secret": CLIENT_SECRET,
        "oidc_roles": "operators=operator,staff=viewer@acme/shop/production",
        **changes,
    }
    login = IdentityProvider(Settings.model_validate(settings)).login
    assert login is not None
    return login


@pytest.fixture
def login(provider: IdentityProviderServer) -> OidcLogin:
    return create_login(provider.issuer)


async def reach_callback(login: OidcLogin, user: str = "alice") -> tuple[dict[str, str], str]:
    """Log a person in at the provider; return the parameters of the callback and the cookie."""
    url, cookie = await login.start(BASE_URL, "/?queue=orders")
    target = urlsplit(await log_in_at_provider(url, user))
    assert f"{target.scheme}://{target.netloc}{target.path}" == f"{BASE_URL}/auth/callback"
    return dict(parse_qsl(target.query)), cookie


def change_attempt(cookie: str, **changes: str) -> str:
    """Another attempt in the cookie, as if the browser had started that one."""
    codec = LoginCookie(CLIENT_SECRET)
    return codec.encode(replace(codec.decode(cookie), **changes))


async def test_a_person_gets_the_roles_of_their_groups(login: OidcLogin) -> None:
    person, next_path = await login.finish(BASE_URL, *await reach_callback(login))
    assert (person.subject, person.name) == ("alice", "alice")
    assert person.roles == {"default/default/default": "operator", "acme/shop/production": "viewer"}
    assert next_path == "/?queue=orders"


async def test_a_person_without_a_role_is_refused(login: OidcLogin) -> None:
    with pytest.raises(
        Forbidden, match="mallory is logged in at the identity provider, but has no role here"
    ):
        await login.finish(BASE_URL, *await reach_callback(login, "mallory"))


async def test_a_code_is_accepted_once(login: OidcLogin) -> None:
    parameters, cookie = await reach_callback(login)
    await login.finish(BASE_URL, parameters, cookie)
    with pytest.raises(LoginFailed, match="did not accept the code"):
        await login.finish(BASE_URL, parameters, cookie)


async def test_the_callback_of_another_login_is_refused(login: OidcLogin) -> None:
    """An attacker who logs a victim in as the attacker sends the attacker's callback."""
    parameters, _ = await reach_callback(login)
    _, cookie_of_victim = await login.start(BASE_URL, "/")
    with pytest.raises(LoginFailed, match="belongs to another login"):
        await login.finish(BASE_URL, parameters, cookie_of_victim)
    with pytest.raises(LoginFailed, match="belongs to another login"):
        await login.finish(BASE_URL, {"code": parameters["code"]}, cookie_of_victim)


async def test_the_code_of_another_login_is_refused_by_pkce(login: OidcLogin) -> None:
    """An attacker who steals a code puts it into a login of their own."""
    stolen, _ = await reach_callback(login)
    parameters, cookie = await reach_callback(login, "mallory")
    with pytest.raises(LoginFailed, match=r"did not accept the code of the callback \(400 invalid_grant\)"):
        await login.finish(BASE_URL, {**parameters, "code": stolen["code"]}, cookie)


async def test_an_id_token_of_another_login_is_refused(login: OidcLogin) -> None:
    parameters, cookie = await reach_callback(login)
    with pytest.raises(LoginFailed, match=r"ID token of the identity provider is refused.*nonce"):
        await login.finish(BASE_URL, parameters, change_attempt(cookie, nonce="another"))


@pytest.mark.parametrize("issuer", [None, "https://evil.example.com"])
async def test_the_callback_of_another_provider_is_refused(login: OidcLogin, issuer: str | None) -> None:
    parameters, cookie = await reach_callback(login)
    changed = {name: value for name, value in {**parameters, "iss": issuer}.items() if value is not None}
    with pytest.raises(LoginFailed, match="another identity provider"):
        await login.finish(BASE_URL, changed, cookie)


async def test_a_wrong_client_secret_is_refused(provider: IdentityProviderServer) -> None:
    login = create_login(provider.issuer, oidc_client_secret="wrong")
    with pytest.raises(LoginFailed, match=r"\(401 invalid_client\)"):
        await login.finish(BASE_URL, *await reach_callback(login))


async def test_a_refusal_of_the_provider_is_shown(login: OidcLogin) -> None:
    parameters, cookie = await reach_callback(login)
    refusal = {**parameters, "error": "access_denied", "error_description": "The person said no."}
    with pytest.raises(LoginFailed, match=r"refused the login: The person said no\."):
        await login.finish(BASE_URL, refusal, cookie)
    del parameters["code"]
    with pytest.raises(LoginFailed, match="has no code"):
        await login.finish(BASE_URL, parameters, cookie)


async def test_the_userinfo_endpoint_is_asked_for_groups_that_the_id_token_lacks(
    provider: IdentityProviderServer,
) -> None:
    login = create_login(provider.issuer, oidc_groups_claim="roles", oidc_roles="*=viewer")
    person, _ = await login.finish(BASE_URL, *await reach_callback(login))
    assert person.roles == {"default/default/default": "viewer"}


async def test_userinfo_adds_groups_and_must_be_about_the_same_person(login: OidcLogin) -> None:
    body = b'{"sub": "alice", "groups": ["operators"], "email": "another@example.com"}'
    claims = {"sub": "alice", "email": "alice@example.com"}
    async with receive_http([http_response(200, body)]) as receiver:
        assert await login._add_userinfo(receiver.url, {"access_token": "a-1"}, claims) == {
            **claims,
            "groups": ["operators"],
        }
        assert receiver.requests[0].headers["authorization"] == "Bearer a-1"
        with pytest.raises(LoginFailed, match="about another person"):
            await login._add_userinfo(receiver.url, {"access_token": "a-1"}, {"sub": "bob"})


async def test_the_issuer_must_be_spelled_as_the_provider_spells_it(provider: IdentityProviderServer) -> None:
    login = create_login(f"{provider.issuer}/")
    with pytest.raises(ProviderUnavailable, match=f"calls itself '{provider.issuer}'"):
        await login.start(BASE_URL, "/")


async def test_a_provider_that_is_away_is_named() -> None:
    async with run_identity_provider() as server:
        pass
    with pytest.raises(ProviderUnavailable, match="does not answer"):
        await create_login(server.issuer).start(BASE_URL, "/")
