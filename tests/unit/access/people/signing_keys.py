"""Keys of an identity provider, and JWTs that it signs."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Mapping
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from penstock.access.people.key_set import KeySet
from penstock.access.people.roles import RoleMapping

NOW = 1_800_000_000.0
ISSUER = "https://login.example.com"
AUDIENCE = "penstock"
ROLES = RoleMapping("ops=operator,*=viewer")

RSA = RSAKey.generate_key(2048, {"kid": "rsa"}, auto_kid=False)
P256 = ECKey.generate_key("P-256", {"kid": "p256"}, auto_kid=False)
P384 = ECKey.generate_key("P-384", {"kid": "p384"}, auto_kid=False)
ED25519 = OKPKey.generate_key("Ed25519", {"kid": "ed25519"}, auto_kid=False)


def valid_claims(**changes: Any) -> dict[str, Any]:
    """Claims that are valid at NOW; a change to None removes a claim."""
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "4711",
        "exp": int(NOW) + 300,
        "nbf": int(NOW),
        "iat": int(NOW),
        "preferred_username": "alice",
        "groups": ["ops"],
        **changes,
    }
    return {name: value for name, value in claims.items() if value is not None}


def sign(claims: Mapping[str, Any], key: Key = RSA, algorithm: str = "RS256", **header: Any) -> str:
    head = {"alg": algorithm, "kid": key.kid, **header}
    head = {name: value for name, value in head.items() if value is not None}
    return jwt.encode(head, dict(claims), key, algorithms=[algorithm])


def sign_with_public_key_as_secret(claims: Mapping[str, Any]) -> str:
    """Forge a JWT from public knowledge: HS256 with the text of the public key as the secret."""
    signed_text = _encode({"alg": "HS256", "kid": RSA.kid}, claims)
    signature = hmac.digest(RSA.as_pem(private=False), signed_text.encode(), "sha256")
    return f"{signed_text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def without_signature(claims: Mapping[str, Any]) -> str:
    """Forge a JWT with the algorithm `none`."""
    return _encode({"alg": "none", "kid": RSA.kid}, claims) + "."


def _encode(*parts: Mapping[str, Any]) -> str:
    texts = (json.dumps(dict(part)).encode() for part in parts)
    return ".".join(base64.urlsafe_b64encode(text).rstrip(b"=").decode() for text in texts)


def jwks(*keys: Key) -> dict[str, Any]:
    return {"keys": [key.as_dict(private=False) for key in keys]}


def key_set(*keys: Key) -> KeySet:
    """A key set whose document always has these keys."""

    async def read() -> dict[str, Any]:
        return jwks(*keys)

    return KeySet(read)
