"""Verify the signature and the claims of JSON Web Tokens (JWT)."""

from __future__ import annotations

import warnings
from typing import Any

from penstock.access.people.key_set import KeySet
from penstock.clock import Clock, system_clock
from penstock.errors import Unauthorized

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "EdDSA", "Ed25519"),
)
"""Signatures with a private key. Neither `none` nor a shared secret (HS256) can prove the sender."""
LEEWAY_S = 60
"""Tolerated difference between the clocks of the provider and the broker."""
MAX_LENGTH = 16 * 1024

# RFC 9864 replaces the name EdDSA, not the signature, and providers still send the old name.
warnings.filterwarnings("ignore", "EdDSA is deprecated", UserWarning)


class JwtVerifier:
    """Verifies JWTs of one issuer for one audience."""

    def __init__(self, keys: KeySet, *, issuer: str, audience: str, clock: Clock = system_clock) -> None:
        self.keys = keys
        self._issuer = issuer
        self._audience = audience
        self._clock = clock

    async def verify(self, token: str, *, nonce: str | None = None) -> dict[str, Any]:
        """Return the claims. Raises Unauthorized if the JWT is not valid now, for this issuer and audience.

        With `nonce`, the claim of this name must be equal to it.
        """
        from joserfc.errors import JoseError

        if len(token) > MAX_LENGTH:
            raise Unauthorized("The JWT is longer than 16 KiB. Ask the identity provider for fewer claims.")
        try:
            claims = await self._verify_signature(token)
            self._claims_registry(nonce).validate(claims)
        except (JoseError, ValueError) as error:
            raise Unauthorized(f"The JWT is not valid: {error}. Send a new one.") from None
        return claims

    async def _verify_signature(self, token: str) -> dict[str, Any]:
        from joserfc import jws, jwt

        header = jws.extract_compact(token.encode()).headers()
        key_id = header.get("kid")
        key = await self.keys.find(key_id if isinstance(key_id, str) else None)
        if key is None:
            raise ValueError("its key is not among those of the identity provider")
        return jwt.decode(token, key, algorithms=ALGORITHMS).claims

    def _claims_registry(self, nonce: str | None) -> Any:
        from joserfc.jwt import ClaimsOption, JWTClaimsRegistry

        options: dict[str, ClaimsOption] = {
            "iss": {"essential": True, "value": self._issuer},
            "aud": {"essential": True, "value": self._audience},
            "exp": {"essential": True},
            "sub": {"essential": True},
        }
        if nonce is not None:
            options["nonce"] = {"essential": True, "value": nonce}
        return JWTClaimsRegistry(now=int(self._clock()), leeway=LEEWAY_S, **options)
