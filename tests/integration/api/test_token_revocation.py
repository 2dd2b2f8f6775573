"""A token on two brokers: hot requests, whose heads the brokers remember, end with it too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx
import pytest_asyncio

from penstock.access.token_service import AccessTokens, NewToken
from penstock.caller import LOCAL_CALLER
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from tests.integration.client.broker_server import run_broker
from tests.waiting import wait_until_async

PUSH = {"items": [{"queue": "q", "payload": 1}]}


@pytest_asyncio.fixture
async def brokers(database_url: str) -> AsyncIterator[list[httpx.AsyncClient]]:
    """Clients of two brokers on one database, both of which require tokens."""
    async with AsyncExitStack() as stack:
        urls = [
            await stack.enter_async_context(
                run_broker(database_url, metrics_enabled=False, authentication="required")
            )
            for _ in range(2)
        ]
        yield [await stack.enter_async_context(httpx.AsyncClient(base_url=url)) for url in urls]


async def push(client: httpx.AsyncClient, secret: str) -> int:
    headers = {"Authorization": f"Bearer {secret}"}
    return (await client.post("/api/v1/push", json=PUSH, headers=headers)).status_code


async def test_a_token_works_and_ends_on_every_broker_within_two_seconds(
    brokers: list[httpx.AsyncClient], database: Database
) -> None:
    tokens = AccessTokens(database)
    issued = await tokens.create(LOCAL_CALLER, NewToken(name="ci", scopes=["produce"]))
    for client in brokers:

        async def is_accepted(client: httpx.AsyncClient = client) -> bool:
            return await push(client, issued.secret) == 201

        await wait_until_async(is_accepted, 2, "the broker knows the token")
        assert await push(client, issued.secret) == 201, "the head is remembered"
    await tokens.revoke(LOCAL_CALLER, issued.token.row.id)
    for client in brokers:

        async def is_refused(client: httpx.AsyncClient = client) -> bool:
            return await push(client, issued.secret) == 401

        await wait_until_async(is_refused, 2, "the broker refuses the token")


async def test_a_new_token_works_on_another_broker_at_once(
    brokers: list[httpx.AsyncClient], database: Database
) -> None:
    tokens = AccessTokens(database)
    for number in range(10):
        issued = await tokens.create(LOCAL_CALLER, NewToken(name=f"t{number}", scopes=["produce"]))
        assert [await push(client, issued.secret) for client in brokers] == [201, 201]


async def test_a_new_environment_is_known_to_another_broker_at_once(
    brokers: list[httpx.AsyncClient], database: Database
) -> None:
    admin = NewToken(name="admin", scopes=["produce", "admin"], is_platform_admin=True)
    secret = (await AccessTokens(database).create(LOCAL_CALLER, admin)).secret
    headers = {"Authorization": f"Bearer {secret}"}
    for number in range(10):
        await database.fetch(
            "INSERT INTO environments (organization, project, name) VALUES ('acme', 'shop', $1)", f"e{number}"
        )
        await database.fetch("SELECT raise_access_version_v1()")
        selected = {**headers, "X-Penstock-Environment": f"acme/shop/e{number}"}
        for client in brokers:
            assert (await client.post("/api/v1/push", json=PUSH, headers=selected)).status_code == 201


async def test_hot_requests_count_as_uses_of_a_token(database_url: str, database: Database) -> None:
    tokens = AccessTokens(database)
    issued = await tokens.create(LOCAL_CALLER, NewToken(name="ci", scopes=["produce"]))
    async with (
        run_broker(database_url, metrics_enabled=False) as url,
        httpx.AsyncClient(base_url=url) as http,
    ):
        assert [await push(http, issued.secret) for _ in range(3)] == [201] * 3
    assert (await tokens.get(DEFAULT_SCOPE, issued.token.row.id)).row.last_used_at is not None


async def test_a_token_that_is_sent_is_checked_even_if_none_is_required(database_url: str) -> None:
    async with (
        run_broker(database_url, metrics_enabled=False) as url,
        httpx.AsyncClient(base_url=url) as http,
    ):
        assert await push(http, "pk_unknown") == 401
        assert await push(http, "another.bearer") == 201
        assert (await http.post("/api/v1/push", json=PUSH)).status_code == 201
