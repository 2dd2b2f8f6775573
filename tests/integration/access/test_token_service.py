"""Tokens are created, listed, rotated and revoked; their secrets are shown once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from penstock.access.token_index import TokenIndex
from penstock.access.token_service import AccessTokens, IssuedToken, NewToken, TokenExists, UnknownToken
from penstock.caller import LOCAL_CALLER, AccessScope, Caller
from penstock.durable.pool import Database
from penstock.errors import Forbidden, InvalidRequest, UnknownEnvironment, WrongState
from penstock.model import DEFAULT_SCOPE, Scope


async def create(tokens: AccessTokens, name: str = "ci", **fields: object) -> IssuedToken:
    token = replace(NewToken(name=name, scopes=["read", "produce"]), **fields)  # type: ignore[arg-type]
    return await tokens.create(LOCAL_CALLER, token)


async def test_a_created_token_is_listed_without_its_secret(tokens: AccessTokens) -> None:
    issued = await create(tokens, queues=["orders-*"], groups=["billing"])
    [token] = await tokens.list_tokens(DEFAULT_SCOPE, limit=10)
    assert token == issued.token == await tokens.get(DEFAULT_SCOPE, token.row.id)
    assert (token.row.name, token.row.scopes, token.row.queues) == ("ci", ["read", "produce"], ["orders-*"])
    assert (token.row.created_by, token.row.state, token.row.last_used_at) == ("local", "active", None)
    assert token.secrets[0].prefix == issued.secret[:10]
    assert issued.secret not in repr(token)
    assert issued.secret not in repr(issued)


async def test_the_database_holds_no_secret(tokens: AccessTokens, database: Database) -> None:
    issued = await create(tokens)
    rows = await database.fetch("SELECT t::text, s::text FROM access_tokens t, access_token_secrets s")
    assert len(rows) == 1
    assert issued.secret[10:] not in str(rows)


async def test_the_caller_of_a_token_has_its_rights(tokens: AccessTokens, index: TokenIndex) -> None:
    issued = await create(tokens, queues=["orders-*"], groups=["billing"])
    caller = index.find(issued.secret)
    assert caller is not None
    assert (caller.environment, caller.subject, caller.active) == (DEFAULT_SCOPE, "token:ci", True)
    assert caller.access == AccessScope.READ | AccessScope.PRODUCE
    assert caller.queues is not None
    assert caller.groups is not None
    assert caller.queues.matches("orders-eu")
    assert not caller.queues.matches("invoices")
    assert not caller.groups.matches("audit")
    assert caller.token_id == str(issued.token.row.id)
    assert not caller.is_platform_admin
    assert index.find(issued.secret + "x") is None


async def test_a_name_is_free_again_once_its_token_is_revoked(tokens: AccessTokens) -> None:
    first = await create(tokens)
    with pytest.raises(TokenExists, match="'ci' exists"):
        await create(tokens)
    await tokens.revoke(LOCAL_CALLER, first.token.row.id)
    second = await create(tokens)
    assert [token.row.id for token in await tokens.list_tokens(DEFAULT_SCOPE, limit=10)] == [
        second.token.row.id
    ]
    states = {
        token.row.id: token.row.state
        for token in await tokens.list_tokens(DEFAULT_SCOPE, with_revoked=True, limit=10)
    }
    assert states == {first.token.row.id: "revoked", second.token.row.id: "active"}


async def test_tokens_of_another_environment_are_unknown(tokens: AccessTokens, database: Database) -> None:
    await database.fetch("INSERT INTO environments (organization, project, name) VALUES ('a', 'b', 'c')")
    issued = await create(tokens)
    other = Caller(Scope("a", "b", "c"), LOCAL_CALLER.access, "token:other")
    assert await tokens.list_tokens(other.environment, limit=10) == []
    for call in (
        tokens.get(other.environment, issued.token.row.id),
        tokens.revoke(other, issued.token.row.id),
    ):
        with pytest.raises(UnknownToken):
            await call
    with pytest.raises(UnknownToken):
        await tokens.rotate(other, issued.token.row.id, 0)
    assert (await tokens.get(DEFAULT_SCOPE, issued.token.row.id)).row.state == "active"


async def test_a_token_needs_an_environment_that_exists(tokens: AccessTokens) -> None:
    nowhere = Caller(Scope("a", "b", "c"), LOCAL_CALLER.access, "token:other")
    with pytest.raises(UnknownEnvironment, match="a/b/c"):
        await tokens.create(nowhere, NewToken(name="ci", scopes=["read"]))


async def test_a_caller_creates_rotates_and_revokes_no_token_with_more_rights(tokens: AccessTokens) -> None:
    issued = await create(tokens)
    limited = Caller(DEFAULT_SCOPE, AccessScope.READ | AccessScope.ADMIN, "token:limited")
    token_id = issued.token.row.id
    for call in (
        tokens.create(limited, NewToken(name="more", scopes=["produce"])),
        tokens.rotate(limited, token_id, 0),
        tokens.revoke(limited, token_id),
    ):
        with pytest.raises(Forbidden, match="scope produce"):
            await call
    [token] = await tokens.list_tokens(DEFAULT_SCOPE, limit=10)
    assert token == issued.token


@pytest.mark.parametrize("quotas", [{}, {"queues": 10}, {"requestsPerSecond": 51}])
async def test_a_caller_with_a_quota_creates_no_token_beyond_it(
    tokens: AccessTokens, quotas: dict[str, float]
) -> None:
    creator = replace(LOCAL_CALLER, token_quotas={"requestsPerSecond": 50})
    with pytest.raises(Forbidden, match="quota requestsPerSecond 50"):
        await tokens.create(creator, NewToken(name="ci", scopes=["read"], quotas=quotas))
    token = NewToken(name="ci", scopes=["read"], quotas={"requestsPerSecond": 50, "queues": 1})
    assert (await tokens.create(creator, token)).token.row.name == "ci"


async def test_an_expired_or_revoked_token_cannot_be_rotated(
    tokens: AccessTokens, database: Database
) -> None:
    expired, revoked = await create(tokens, "expired", expires_in_s=3600), await create(tokens, "revoked")
    await database.fetch("UPDATE access_tokens SET expires_at = now() WHERE name = 'expired'")
    await tokens.revoke(LOCAL_CALLER, revoked.token.row.id)
    for issued, state in ((expired, "expired"), (revoked, "revoked")):
        with pytest.raises(WrongState, match=f"is {state}"):
            await tokens.rotate(LOCAL_CALLER, issued.token.row.id, 0)
    with pytest.raises(UnknownToken):
        await tokens.rotate(LOCAL_CALLER, uuid4(), 0)


async def test_a_token_expires_at_one_time_in_the_future(tokens: AccessTokens) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    issued = await create(tokens, expires_at=tomorrow)
    assert issued.token.row.expires_at == tomorrow
    with pytest.raises(InvalidRequest, match="not both"):
        await create(tokens, "both", expires_at=tomorrow, expires_in_s=1)
    with pytest.raises(InvalidRequest, match="in the past"):
        await create(tokens, "past", expires_at=datetime.now(UTC))
