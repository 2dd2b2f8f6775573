"""The settings of the identity provider: what has to come together."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.access.people.identity_provider import IdentityProvider
from penstock.config import Settings
from penstock.errors import ConfigError

OIDC = {
    "authentication": "required",
    "oidc_issuer": "https://login.example.com",
    "oidc_client_id": "penstock",
    "oidc_client_secret": "hush",
    "oidc_roles": "ops=operator",
}
JWT = {
    "authentication": "required",
    "jwks": "https://login.example.com/keys",
    "jwt_issuer": "https://login.example.com",
    "jwt_audience": "penstock",
    "oidc_roles": "ops=operator",
}


def test_without_settings_there_is_no_provider() -> None:
    provider = IdentityProvider(Settings())
    assert (provider.login, provider.jwt) == (None, None)


@pytest.mark.parametrize(
    ("settings", "has_login", "has_jwt"),
    [
        (OIDC, True, False),
        (JWT, False, True),
        ({**OIDC, "jwt_audience": "api"}, True, True),
        ({**OIDC, **JWT, "jwks": __file__}, True, True),
        ({**OIDC, "oidc_issuer": "http://localhost:8080/realms/a"}, True, False),
        ({**OIDC, "oidc_issuer": "http://[::1]:8080"}, True, False),
    ],
)
def test_complete_settings(settings: dict[str, Any], has_login: bool, has_jwt: bool) -> None:
    provider = IdentityProvider(Settings(**settings))
    assert (provider.login is not None, provider.jwt is not None) == (has_login, has_jwt)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({**OIDC, "authentication": "none"}, "PENSTOCK_AUTHENTICATION=required"),
        ({**JWT, "authentication": "none"}, "PENSTOCK_AUTHENTICATION=required"),
        ({**OIDC, "oidc_client_secret": ""}, "PENSTOCK_OIDC_ISSUER also needs PENSTOCK_OIDC_CLIENT_SECRET"),
        ({**OIDC, "oidc_client_id": ""}, "PENSTOCK_OIDC_ISSUER also needs PENSTOCK_OIDC_CLIENT_ID"),
        ({**OIDC, "oidc_roles": ""}, "also needs PENSTOCK_OIDC_ROLES"),
        ({**OIDC, "oidc_roles": "ops"}, "must be group=role"),
        ({**OIDC, "oidc_issuer": ""}, "PENSTOCK_OIDC_CLIENT_ID also needs PENSTOCK_OIDC_ISSUER"),
        ({**OIDC, "oidc_issuer": "http://login.example.com"}, "must be an https:// URL"),
        ({**JWT, "jwt_audience": ""}, "PENSTOCK_JWKS also needs PENSTOCK_JWT_AUDIENCE"),
        ({**JWT, "jwt_issuer": ""}, "PENSTOCK_JWT_AUDIENCE also needs PENSTOCK_JWT_ISSUER"),
        ({**JWT, "jwks": ""}, "PENSTOCK_JWT_AUDIENCE also needs PENSTOCK_JWKS"),
        ({**JWT, "jwks": "missing.json"}, "the file missing.json does not exist"),
        ({**JWT, "jwks": "http://login.example.com/keys"}, "must be an https:// URL"),
    ],
)
def test_incomplete_settings_say_what_is_missing(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        IdentityProvider(Settings(**settings))
