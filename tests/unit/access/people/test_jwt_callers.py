"""Callers of JWTs: verified once, until they expire or the provider changes its keys."""

from __future__ import annotations

import asyncio

import pytest
from joserfc.jwk import Key

from penstock.access.people.jwt_callers import JwtCallers
from penstock.access.people.jwt_verifier import LEEWAY_S, JwtVerifier
from penstock.access.people.key_set import REFRESH_S
from penstock.access.people.roles import RoleMapping
from penstock.errors import Forbidden, Unauthorized
from penstock.model import DEFAULT_SCOPE
from tests.unit.access.people.signing_keys import AUDIENCE, ISSUER, NOW, P256, RSA, jwks, sign, valid_claims
from tests.unit.access.people.test_key_set import KeyDocument
from tests.waiting import wait_until_async


class JwtIssuer:
    """An issuer with a clock, and the callers of its JWTs."""

    def __init__(self, *keys: Key, roles: str = "ops=operator") -> None:
        self.now = NOW
        self.document = KeyDocument(jwks(*keys))
        verifier = JwtVerifier(self.document.keys, issuer=ISSUER, audience=AUDIENCE, clock=lambda: self.now)
        self.callers = JwtCallers(
            verifier, groups_claim="groups", roles=RoleMapping(roles), clock=lambda: self.now
        )


async def test_a_jwt_is_verified_once() -> None:
    issuer = JwtIssuer(RSA)
    token = sign(valid_claims())
    assert issuer.callers.find(token) is None
    person = await issuer.callers.authenticate(token)
    assert issuer.callers.find(token) is person
    assert await issuer.callers.authenticate(token) is person
    assert person.roles == {"default/default/default": "operator"}


async def test_concurrent_requests_with_a_new_jwt_share_their_caller() -> None:
    """Each caller that requests run with must be known, so that it ends when the JWT expires."""
    issuer = JwtIssuer(RSA)
    token = sign(valid_claims())
    people = await asyncio.gather(*(issuer.callers.authenticate(token) for _ in range(5)))
    assert len({id(person) for person in people}) == 1


async def test_an_expired_jwt_ends_its_requests() -> None:
    issuer = JwtIssuer(RSA)
    token = sign(valid_claims())
    caller = (await issuer.callers.authenticate(token)).caller_in(DEFAULT_SCOPE)
    issuer.now = valid_claims()["exp"] + LEEWAY_S
    assert issuer.callers.find(token) is None
    with pytest.raises(Unauthorized, match="expired"):
        await issuer.callers.authenticate(token)
    issuer.callers.end_expired()
    assert not caller.active


async def test_a_withdrawn_key_ends_its_jwts() -> None:
    issuer = JwtIssuer(RSA, P256)
    token = sign(valid_claims())
    caller = (await issuer.callers.authenticate(token)).caller_in(DEFAULT_SCOPE)
    issuer.document.document = jwks(P256)
    issuer.document.now_s += REFRESH_S

    async def has_ended() -> bool:
        issuer.callers.end_expired()
        return issuer.callers.find(token) is None

    await wait_until_async(has_ended, 5, "the JWT is not known any more")
    assert not caller.active
    with pytest.raises(Unauthorized, match="its key is not among those"):
        await issuer.callers.authenticate(token)


async def test_a_jwt_without_a_role_is_forbidden() -> None:
    with pytest.raises(Forbidden, match="alice gives no role"):
        await JwtIssuer(RSA, roles="admins=admin").callers.authenticate(sign(valid_claims()))
