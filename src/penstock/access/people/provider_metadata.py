"""Discover an OpenID Connect provider: its endpoints and capabilities."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.access.people.provider_http import fetch_json
from penstock.access.people.provider_settings import require_protected_url
from penstock.errors import ConfigError, PenstockError, ProviderUnavailable

logger = logging.getLogger(__name__)

MAX_AGE_S = 3600.0
RETRY_S = 30.0
"""Time until an outdated document is requested again after a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderMetadata:
    """What the broker uses of the provider's discovery document."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None
    scopes: frozenset[str]
    authentication_methods: frozenset[str]
    """How a client may send its secret to the token endpoint."""
    sends_issuer: bool
    """Whether the parameter `iss` of the callback names the provider (RFC 9207)."""


class OidcProvider:
    """The provider with this issuer URL. Its document is read when first needed, and again every hour."""

    def __init__(self, issuer: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.issuer = issuer
        self._monotonic = monotonic
        self._metadata: ProviderMetadata | None = None
        self._read_again_at = 0.0
        self._lock = asyncio.Lock()

    async def metadata(self) -> ProviderMetadata:
        """Return the current document; the last one while the provider is unreachable.

        Raises ProviderUnavailable if there is none yet.
        """
        async with self._lock:
            now = self._monotonic()
            if self._metadata is not None and now < self._read_again_at:
                return self._metadata
            try:
                self._metadata = await self._discover()
                self._read_again_at = now + MAX_AGE_S
            except PenstockError as error:
                if self._metadata is None:
                    raise
                logger.warning("The OpenID Connect provider's last document stays in use. %s", error.detail)
                self._read_again_at = now + RETRY_S
            return self._metadata

    async def read_keys(self) -> dict[str, Any]:
        """Return the provider's JWKS document."""
        return await fetch_json((await self.metadata()).jwks_uri)

    async def _discover(self) -> ProviderMetadata:
        url = self.issuer.rstrip("/") + "/.well-known/openid-configuration"
        document = await fetch_json(url)
        if document.get("issuer") != self.issuer:
            raise ProviderUnavailable(
                f"The provider at {url} calls itself {document.get('issuer')!r}. "
                "Set PENSTOCK_OIDC_ISSUER to exactly this text."
            )
        return parse_metadata(document)


def parse_metadata(document: dict[str, Any]) -> ProviderMetadata:
    """Check a discovery document. Raises ProviderUnavailable if an endpoint is missing or not protected."""
    return ProviderMetadata(
        authorization_endpoint=_endpoint(document, "authorization_endpoint"),
        token_endpoint=_endpoint(document, "token_endpoint"),
        jwks_uri=_endpoint(document, "jwks_uri"),
        userinfo_endpoint=(
            _endpoint(document, "userinfo_endpoint") if document.get("userinfo_endpoint") else None
        ),
        scopes=_texts(document, "scopes_supported"),
        authentication_methods=_texts(document, "token_endpoint_auth_methods_supported"),
        sends_issuer=document.get("authorization_response_iss_parameter_supported") is True,
    )


def _endpoint(document: dict[str, Any], name: str) -> str:
    try:
        return require_protected_url(str(document.get(name, "")), f"The provider's {name}")
    except ConfigError as error:
        raise ProviderUnavailable(error.detail) from None


def _texts(document: dict[str, Any], name: str) -> frozenset[str]:
    values = document.get(name)
    return (
        frozenset(value for value in values if isinstance(value, str))
        if isinstance(values, list)
        else frozenset()
    )
