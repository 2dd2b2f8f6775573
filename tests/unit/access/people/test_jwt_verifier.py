"""JWTs: which signatures and claims are accepted, and which forgeries are refused."""

from __future__ import annotations

from typing import Any

import pytest
from joserfc.jwk import Key, RSAKey

from penstock.access.people.jwt_verifier import JwtVerifier
from penstock.errors import Unauthorized
from tests.unit.access.people.signing_keys import (
    AUDIENCE,
    ED25519,
    ISSUER,
    NOW,
    P256,
    P384,
    RSA,
    key_set,
    sign,
    sign_with_public_key_as_secret,
    valid_claims,
    without_signature,
)


def verifier(*keys: Key) -> JwtVerifier:
    keys = keys or (RSA, P256, P384, ED25519)
    return JwtVerifier(key_set(*keys), issuer=ISSUER, audience=AUDIENCE, clock=lambda: NOW)


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        *((RSA, name) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
        *((P256, "ES256"), (P384, "ES384"), (ED25519, "EdDSA"), (ED25519, "Ed25519")),
    ],
)
async def test_signatures_of_private_keys_are_accepted(key: Key, algorithm: str) -> None:
    claims = await verifier().verify(sign(valid_claims(), key, algorithm))
    assert claims == valid_claims()


async def test_an_audience_may_be_one_of_a_list() -> None:
    claims = valid_claims(aud=["another", AUDIENCE])
    assert await verifier().verify(sign(claims)) == claims


async def test_a_jwt_without_a_key_id_is_verified_with_the_only_key() -> None:
    token = sign(valid_claims(), kid=None)
    assert await verifier(RSA).verify(token) == valid_claims()
    with pytest.raises(Unauthorized, match="its key is not among those"):
        await verifier().verify(token)


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        (valid_claims(exp=int(NOW) - 61), "expired"),
        (valid_claims(exp=None), "exp"),
        (valid_claims(exp=str(int(NOW) + 300)), "exp"),
        (valid_claims(exp=float("nan")), "exp"),
        (valid_claims(nbf=int(NOW) + 61), "not yet valid"),
        (valid_claims(iat=int(NOW) + 61), "issued in the future"),
        (valid_claims(iss="https://evil.example.com"), "iss"),
        (valid_claims(iss=None), "iss"),
        (valid_claims(iss=[ISSUER]), "iss"),
        (valid_claims(aud="another"), "aud"),
        (valid_claims(aud=None), "aud"),
        (valid_claims(aud=["another"]), "aud"),
        (valid_claims(sub=None), "sub"),
        (valid_claims(sub=4711), "sub"),
    ],
)
async def test_wrong_claims_are_refused(claims: dict[str, Any], reason: str) -> None:
    with pytest.raises(Unauthorized, match=reason):
        await verifier().verify(sign(claims))


@pytest.mark.parametrize(
    "claims",
    [valid_claims(exp=int(NOW) - 59), valid_claims(nbf=int(NOW) + 59), valid_claims(iat=int(NOW) + 59)],
)
async def test_clocks_may_differ_by_a_minute(claims: dict[str, Any]) -> None:
    assert await verifier().verify(sign(claims)) == claims


async def test_a_jwt_without_a_signature_is_refused() -> None:
    with pytest.raises(Unauthorized, match="'none' is not allowed"):
        await verifier().verify(without_signature(valid_claims()))


async def test_a_public_key_is_no_shared_secret() -> None:
    with pytest.raises(Unauthorized, match="'HS256' is not allowed"):
        await verifier().verify(sign_with_public_key_as_secret(valid_claims()))


async def test_another_key_with_a_known_id_is_refused() -> None:
    impostor = RSAKey.generate_key(2048, {"kid": "rsa"}, auto_kid=False)
    with pytest.raises(Unauthorized, match="bad_signature"):
        await verifier().verify(sign(valid_claims(), impostor))


async def test_an_unknown_key_id_is_refused() -> None:
    with pytest.raises(Unauthorized, match="its key is not among those"):
        await verifier(P256).verify(sign(valid_claims()))


async def test_an_algorithm_of_another_kind_of_key_is_refused() -> None:
    with pytest.raises(Unauthorized, match="requires 'EC' key"):
        await verifier().verify(sign(valid_claims(), P256, "ES256", kid=RSA.kid))


async def test_a_key_for_another_algorithm_is_refused() -> None:
    limited = RSAKey.import_key({**RSA.as_dict(private=False), "alg": "RS256"})
    with pytest.raises(Unauthorized, match="RS256"):
        await verifier(limited).verify(sign(valid_claims(), algorithm="RS512"))


async def test_changed_claims_are_refused() -> None:
    head, _, signature = sign(valid_claims()).split(".")
    _, payload, _ = sign(valid_claims(groups=["admins"])).split(".")
    with pytest.raises(Unauthorized, match="bad_signature"):
        await verifier().verify(f"{head}.{payload}.{signature}")


@pytest.mark.parametrize("text", ["", "a.b.c", "....", "eyJhbGciOiJSUzI1NiJ9..", "é.é.é", "a" * 20_000])
async def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(Unauthorized):
        await verifier().verify(text)


async def test_the_nonce_of_a_login_must_come_back() -> None:
    token = sign(valid_claims(nonce="n-1"))
    assert (await verifier().verify(token, nonce="n-1"))["nonce"] == "n-1"
    for nonce, claims in [("n-2", valid_claims(nonce="n-1")), ("n-1", valid_claims())]:
        with pytest.raises(Unauthorized, match="nonce"):
            await verifier().verify(sign(claims), nonce=nonce)
