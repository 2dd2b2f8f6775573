"""The identity provider that the settings name: logins of people, and JWTs for the API."""

from __future__ import annotations

from urllib.parse import urlsplit

from penstock.access.people.jwt_callers import JwtCallers
from penstock.access.people.jwt_verifier import JwtVerifier
from penstock.access.people.key_set import KeySet, reader_of
from penstock.access.people.oidc_login import OidcLogin
from penstock.access.people.provider_metadata import OidcProvider
from penstock.access.people.provider_settings import check_provider_settings
from penstock.access.people.roles import RoleMapping
from penstock.clock import Clock, system_clock
from penstock.config import Settings


class IdentityProvider:
    """Logins through OpenID Connect and JWTs, each None unless the settings switch it on.

    Nothing is requested from the provider before the first login or JWT, so a broker starts without it.
    """

    def __init__(self, settings: Settings, clock: Clock = system_clock) -> None:
        """Raises ConfigError if a setting is missing or contradicts another."""
        check_provider_settings(settings)
        self.roles = RoleMapping(settings.oidc_roles)
        self.login: OidcLogin | None = None
        self.login_name = urlsplit(settings.oidc_issuer).hostname
        """The name of the provider for the login page."""
        self.jwt: JwtCallers | None = None
        self._key_sets: list[KeySet] = []
        provider_keys = None
        if settings.oidc_issuer:
            provider = OidcProvider(settings.oidc_issuer)
            provider_keys = self._add_keys(KeySet(provider.read_keys))
            self.login = OidcLogin(
                provider,
                provider_keys,
                client_id=settings.oidc_client_id,
                client_secret=settings.oidc_client_secret,
                groups_claim=settings.oidc_groups_claim,
                roles=self.roles,
                clock=clock,
            )
        if settings.jwt_audience:
            keys = self._add_keys(KeySet(reader_of(settings.jwks))) if settings.jwks else provider_keys
            assert keys is not None
            issuer = settings.jwt_issuer or settings.oidc_issuer
            verifier = JwtVerifier(keys, issuer=issuer, audience=settings.jwt_audience, clock=clock)
            self.jwt = JwtCallers(
                verifier, groups_claim=settings.oidc_groups_claim, roles=self.roles, clock=clock
            )

    async def stop(self) -> None:
        for keys in self._key_sets:
            await keys.stop()

    def _add_keys(self, keys: KeySet) -> KeySet:
        self._key_sets.append(keys)
        return keys
