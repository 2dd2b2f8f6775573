"""Log people in through OpenID Connect: the authorization code flow with PKCE."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from penstock.access.people.jwt_verifier import JwtVerifier
from penstock.access.people.key_set import KeySet
from penstock.access.people.login_attempt import LoginAttempt, LoginCookie, new_attempt
from penstock.access.people.person import Person, groups_in, person_from_claims
from penstock.access.people.provider_http import fetch_json, post_form
from penstock.access.people.provider_metadata import OidcProvider, ProviderMetadata
from penstock.access.people.roles import RoleMapping
from penstock.clock import Clock, system_clock
from penstock.errors import Forbidden, LoginFailed, Unauthorized

REQUESTED_SCOPES = ("openid", "profile", "email", "groups")
CALLBACK_PATH = "/auth/callback"


class OidcLogin:
    """Logins at one provider."""

    def __init__(
        self,
        provider: OidcProvider,
        keys: KeySet,
        *,
        client_id: str,
        client_secret: str,
        groups_claim: str,
        roles: RoleMapping,
        clock: Clock = system_clock,
    ) -> None:
        self._provider = provider
        self._client_id = client_id
        self._client_secret = client_secret
        self._groups_claim = groups_claim
        self._roles = roles
        self._cookie = LoginCookie(client_secret, clock)
        self._verifier = JwtVerifier(keys, issuer=provider.issuer, audience=client_id, clock=clock)

    async def start(self, base_url: str, next_path: str) -> tuple[str, str]:
        """Return the URL of the provider's login page, and the cookie that the callback needs."""
        metadata = await self._provider.metadata()
        attempt = new_attempt(next_path)
        scopes = [
            scope for scope in REQUESTED_SCOPES if scope in metadata.scopes or scope == REQUESTED_SCOPES[0]
        ]
        parameters = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": redirect_uri(base_url),
            "scope": " ".join(scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        endpoint = metadata.authorization_endpoint
        separator = "&" if "?" in endpoint else "?"
        cookie = await asyncio.to_thread(self._cookie.encode, attempt)  # the first call imports a library
        return f"{endpoint}{separator}{urlencode(parameters)}", cookie

    async def finish(self, base_url: str, parameters: Mapping[str, str], cookie: str) -> tuple[Person, str]:
        """Redeem the code of a callback; return the person and the path to go to.

        Raises LoginFailed if the callback does not belong to a login of this browser, if the provider
        refused, or if its ID token is not valid, and Forbidden if the person has no role.
        """
        attempt = await asyncio.to_thread(self._cookie.decode, cookie)
        metadata = await self._provider.metadata()
        code = self._check_callback(metadata, attempt, parameters)
        tokens = await self._redeem(metadata, attempt, code, redirect_uri(base_url))
        claims = await self._verify_id_token(tokens, attempt)
        if not groups_in(claims, self._groups_claim) and metadata.userinfo_endpoint:
            claims = await self._add_userinfo(metadata.userinfo_endpoint, tokens, claims)
        person = person_from_claims(claims, self._groups_claim, self._roles)
        if not person.roles:
            raise Forbidden(
                f"{person.name} is logged in at the identity provider, but has no role here. Ask an "
                "administrator to give one of your groups a role in PENSTOCK_OIDC_ROLES."
            )
        return person, attempt.next_path

    def _check_callback(
        self, metadata: ProviderMetadata, attempt: LoginAttempt, parameters: Mapping[str, str]
    ) -> str:
        """Return the code of a callback that belongs to this login."""
        if not hmac.compare_digest(parameters.get("state", "").encode(), attempt.state.encode()):
            raise LoginFailed("The callback belongs to another login than this browser's. Log in again.")
        issuer = parameters.get("iss")
        if issuer != self._provider.issuer and (issuer is not None or metadata.sends_issuer):
            raise LoginFailed("The callback comes from another identity provider. Log in again.")
        if "error" in parameters:
            reason = parameters.get("error_description") or parameters["error"]
            raise LoginFailed(f"The identity provider refused the login: {reason[:200]}")
        code = parameters.get("code", "")
        if not code:
            raise LoginFailed("The callback has no code. Log in again.")
        return code

    async def _redeem(
        self, metadata: ProviderMetadata, attempt: LoginAttempt, code: str, redirect: str
    ) -> dict[str, Any]:
        """Exchange the code for tokens. The provider accepts each code once."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "code_verifier": attempt.verifier,
        }
        methods = metadata.authentication_methods
        auth = None
        if "client_secret_post" in methods and "client_secret_basic" not in methods:
            form |= {"client_id": self._client_id, "client_secret": self._client_secret}
        else:
            # RFC 6749, section 2.3.1: both are encoded as in a form before HTTP Basic encodes them. Providers
            # differ in how they read a plus sign, so a space is %20.
            auth = quote(self._client_id, safe=""), quote(self._client_secret, safe="")
        status, body = await post_form(metadata.token_endpoint, form, auth)
        if status != 200 or not isinstance(body, dict):
            reason = body.get("error", "") if isinstance(body, dict) else ""
            raise LoginFailed(
                f"The identity provider did not accept the code of the callback ({status} {reason}). "
                "Log in again."
            )
        return body

    async def _verify_id_token(self, tokens: Mapping[str, Any], attempt: LoginAttempt) -> dict[str, Any]:
        try:
            claims = await self._verifier.verify(str(tokens.get("id_token", "")), nonce=attempt.nonce)
        except Unauthorized as error:
            raise LoginFailed(f"The ID token of the identity provider is refused. {error.detail}") from None
        if claims.get("azp", self._client_id) != self._client_id:
            raise LoginFailed("The ID token was issued for another client of the identity provider.")
        return claims

    async def _add_userinfo(
        self, endpoint: str, tokens: Mapping[str, Any], claims: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the claims with those of the userinfo endpoint: some providers list groups only there."""
        userinfo = await fetch_json(endpoint, bearer=str(tokens.get("access_token", "")))
        if userinfo.get("sub") != claims["sub"]:
            raise LoginFailed("The identity provider's userinfo is about another person. Log in again.")
        return {**userinfo, **claims}


def redirect_uri(base_url: str) -> str:
    """The URL that the provider sends the browser back to. Register it there."""
    return base_url.rstrip("/") + CALLBACK_PATH
