"""Brokers know every token without a query, and end it soon after its end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.access.token_index import TokenIndex
from penstock.access.token_service import AccessTokens, IssuedToken, NewToken
from penstock.caller import LOCAL_CALLER, Caller
from penstock.durable import migrations
from penstock.durable.pool import Database
from penstock.errors import DatabaseUnavailable, UnknownEnvironment
from penstock.model import DEFAULT_SCOPE, Scope
from tests.integration.broker.brokers import CuttableProxy
from tests.integration.databases import new_database
from tests.waiting import wait_until_async

SHOP = Scope("acme", "shop", "production")


@asynccontextmanager
async def running_index(url: str, **intervals: float) -> AsyncIterator[TokenIndex]:
    index = TokenIndex(url, **intervals)
    await index.start()
    try:
        yield index
    finally:
        await index.stop()


async def create(tokens: AccessTokens, name: str = "ci", **fields: float) -> IssuedToken:
    return await tokens.create(LOCAL_CALLER, NewToken(name=name, scopes=["read"], **fields))  # type: ignore[arg-type]


def find(index: TokenIndex, issued: IssuedToken) -> Caller:
    caller = index.find(issued.secret)
    assert caller is not None
    return caller


async def wait_for_end(caller: Caller) -> None:
    async def has_ended() -> bool:
        return not caller.active

    await wait_until_async(has_ended, 10, "the token ends")


async def test_a_revoked_token_ends_on_every_broker(
    tokens: AccessTokens, index: TokenIndex, database_url: str
) -> None:
    issued = await create(tokens)
    async with running_index(database_url) as other_index:
        caller, other_caller = find(index, issued), find(other_index, issued)
        ended: list[set[int]] = []
        other_index.on_tokens_ended = ended.append
        await tokens.revoke(LOCAL_CALLER, issued.token.row.id)
        assert not caller.active
        assert index.find(issued.secret) is None
        await wait_for_end(other_caller)
        assert other_index.find(issued.secret) is None
        assert ended == [{caller.token_number}]


async def test_a_token_created_elsewhere_is_known_soon(tokens: AccessTokens, database_url: str) -> None:
    async with running_index(database_url) as other_index:
        issued = await create(tokens)

        async def is_known() -> bool:
            return other_index.find(issued.secret) is not None

        await wait_until_async(is_known, 2, "the other broker knows the token")


async def test_a_rotated_token_has_two_secrets_during_the_overlap(
    tokens: AccessTokens, index: TokenIndex
) -> None:
    issued = await create(tokens)
    ended: list[set[int]] = []
    index.on_tokens_ended = ended.append
    old_caller = find(index, issued)
    rotated = await tokens.rotate(LOCAL_CALLER, issued.token.row.id, overlap_s=0.7)
    new_caller = find(index, rotated)
    assert old_caller.active
    assert [secret.prefix for secret in rotated.token.secrets] == [rotated.secret[:10], issued.secret[:10]]
    await wait_for_end(old_caller)
    assert index.find(issued.secret) is None
    assert index.find(rotated.secret) is new_caller
    assert new_caller.active
    # The token goes on, so its leases do.
    assert new_caller.token_number == old_caller.token_number
    assert ended == [set()]


async def test_rotation_without_overlap_ends_the_old_secret_at_once(
    tokens: AccessTokens, index: TokenIndex
) -> None:
    issued = await create(tokens)
    rotated = await tokens.rotate(LOCAL_CALLER, issued.token.row.id, overlap_s=0)
    assert index.find(issued.secret) is None
    assert index.find(rotated.secret) is not None


async def test_a_token_expires_without_any_change(tokens: AccessTokens, index: TokenIndex) -> None:
    caller = find(index, await create(tokens, expires_in_s=0.7))
    assert caller.active
    await wait_for_end(caller)


async def test_a_caller_stays_the_same_while_other_tokens_change(
    tokens: AccessTokens, index: TokenIndex
) -> None:
    issued = await create(tokens)
    caller = find(index, issued)
    other = await create(tokens, "other")
    await tokens.revoke(LOCAL_CALLER, other.token.row.id)
    assert index.find(issued.secret) is caller
    assert caller.active


async def test_the_last_use_is_stored_in_batches(tokens: AccessTokens, database_url: str) -> None:
    issued, unused = await create(tokens), await create(tokens, "unused")
    async with running_index(database_url, record_use_interval_s=0) as index:
        find(index, issued)

        async def is_recorded() -> bool:
            return (await tokens.get(DEFAULT_SCOPE, issued.token.row.id)).row.last_used_at is not None

        await wait_until_async(is_recorded, 5, "the use of the token is stored")
    assert (await tokens.get(DEFAULT_SCOPE, unused.token.row.id)).row.last_used_at is None


async def test_the_last_use_is_stored_when_the_broker_stops(tokens: AccessTokens, database_url: str) -> None:
    issued = await create(tokens)
    async with running_index(database_url) as index:
        find(index, issued)
    assert (await tokens.get(DEFAULT_SCOPE, issued.token.row.id)).row.last_used_at is not None


async def test_tokens_work_and_expire_while_postgresql_is_unreachable(
    tokens: AccessTokens, database_url: str
) -> None:
    lasting = await create(tokens)
    proxy = CuttableProxy(database_url)
    async with proxy.run() as url, running_index(url) as index:
        expiring = await create(tokens, "expiring", expires_in_s=2)
        await index.refresh()
        lasting_caller, expiring_caller = find(index, lasting), find(index, expiring)
        proxy.cut()
        await wait_for_end(expiring_caller)
        assert index.find(lasting.secret) is lasting_caller
        await tokens.revoke(LOCAL_CALLER, lasting.token.row.id)
        with pytest.raises(DatabaseUnavailable):
            await index.refresh()
        assert lasting_caller.active
        proxy.restore()
        await wait_for_end(lasting_caller)


async def test_before_the_first_load_an_unknown_token_is_no_invalid_one(
    tokens: AccessTokens, database_url: str
) -> None:
    issued = await create(tokens)
    proxy = CuttableProxy(database_url)
    async with proxy.run() as url:
        proxy.cut()
        async with running_index(url) as index:
            with pytest.raises(DatabaseUnavailable, match="before PostgreSQL responds"):
                index.find(issued.secret)
            with pytest.raises(DatabaseUnavailable):
                index.environment(DEFAULT_SCOPE)
            proxy.restore()

            async def is_loaded() -> bool:
                try:
                    return index.find(issued.secret) is not None
                except DatabaseUnavailable:
                    return False

            await wait_until_async(is_loaded, 5, "the index is loaded")


async def test_a_broker_starts_before_the_database_is_migrated(postgres_url: str) -> None:
    async with new_database(postgres_url) as url, running_index(url) as index:
        with pytest.raises(DatabaseUnavailable):
            index.find("pk_secret")
        async with migrations.migration_lock(url) as connection:
            await migrations.apply(connection)

        async def is_loaded() -> bool:
            try:
                return index.find("pk_secret") is None
            except DatabaseUnavailable:
                return False

        await wait_until_async(is_loaded, 5, "the index is loaded")


async def add_environment(database: Database, index: TokenIndex) -> None:
    await database.fetch(
        "INSERT INTO environments (organization, project, name, quotas) VALUES ($1, $2, $3, $4)",
        *SHOP,
        '{"queues": 10}',
    )
    await database.fetch("SELECT raise_access_version_v1()")
    await index.refresh()


async def test_environments_are_known_with_their_quotas(index: TokenIndex, database: Database) -> None:
    with pytest.raises(UnknownEnvironment, match="acme/shop/production does not exist"):
        index.environment(SHOP)
    await add_environment(database, index)
    environment = index.environment(SHOP)
    assert (environment.scope, environment.quotas) == (SHOP, {"queues": 10})
    assert {known.scope for known in index.environments()} == {DEFAULT_SCOPE, SHOP}


async def test_an_administrator_in_an_environment_ends_with_the_token_and_with_the_environment(
    index: TokenIndex, tokens: AccessTokens, database: Database
) -> None:
    await add_environment(database, index)
    issued = await create(tokens)
    admin = find(index, issued)
    in_shop, local_in_shop = index.caller_in(admin, SHOP), index.caller_in(LOCAL_CALLER, SHOP)
    assert (in_shop.environment, in_shop.access, in_shop.subject) == (SHOP, admin.access, "token:ci")
    assert index.caller_in(admin, SHOP) is in_shop
    await tokens.revoke(LOCAL_CALLER, issued.token.row.id)
    assert not in_shop.active
    assert local_in_shop.active
    await database.fetch("UPDATE environments SET deletion_requested_at = now() WHERE name = 'production'")
    await database.fetch("SELECT raise_access_version_v1()")
    await index.refresh()
    assert not local_in_shop.active
    with pytest.raises(UnknownEnvironment):
        index.caller_in(LOCAL_CALLER, SHOP)


async def test_tokens_of_an_environment_end_when_its_deletion_is_requested(
    index: TokenIndex, tokens: AccessTokens, database: Database
) -> None:
    await add_environment(database, index)
    issued = await tokens.create(index.caller_in(LOCAL_CALLER, SHOP), NewToken(name="ci", scopes=["read"]))
    caller = find(index, issued)
    await database.fetch("UPDATE environments SET deletion_requested_at = now() WHERE name = 'production'")
    await database.fetch("SELECT raise_access_version_v1()")
    await wait_for_end(caller)
