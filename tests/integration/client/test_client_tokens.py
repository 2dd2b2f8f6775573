"""The Python client with tokens of a broker that requires them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from penstock.access.token_service import AccessTokens, IssuedToken, NewToken
from penstock.caller import LOCAL_CALLER
from penstock.client import AccessDenied, Client, Message, SyncClient
from penstock.durable.pool import Database
from tests.deadlines import deadline_s
from tests.integration.client.broker_server import run_broker


@pytest_asyncio.fixture
async def url(database_url: str) -> AsyncIterator[str]:
    async with run_broker(database_url, metrics_enabled=False, authentication="required") as address:
        yield address


@pytest_asyncio.fixture
async def issued(database: Database) -> IssuedToken:
    token = NewToken(name="worker", scopes=["produce", "consume"], queues=["orders"])
    return await AccessTokens(database).create(LOCAL_CALLER, token)


async def test_a_client_pushes_pops_and_acks_with_its_token(url: str, issued: IssuedToken) -> None:
    async with Client(url, token=issued.secret) as client:
        await client.push("orders", 1)
        [message] = await client.pop("orders")
        await client.ack(message)
        with pytest.raises(AccessDenied, match="limited to the queues orders") as error:
            await client.push("invoices", 1)
        assert error.value.status == 403


async def test_the_token_may_be_in_the_environment(
    url: str, issued: IssuedToken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", issued.secret)

    def push() -> str:
        with SyncClient(url) as client:
            return client.push("orders", 1).status

    assert await asyncio.to_thread(push) == "queued"


async def test_without_a_token_access_is_denied_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)
    async with Client(url) as client:
        with pytest.raises(AccessDenied, match="no token") as error:
            await client.push("orders", 1)
    assert error.value.status == 401


async def test_a_consumer_ends_when_its_token_is_revoked(
    url: str, issued: IssuedToken, database: Database
) -> None:
    handled = asyncio.Event()

    async def handle(message: Message) -> None:
        handled.set()

    async with Client(url, token=issued.secret) as client:
        await client.push("orders", 1)
        running = asyncio.create_task(client.consume("orders", handle, wait_s=60).run())
        async with asyncio.timeout(deadline_s(20)):
            await handled.wait()
            await AccessTokens(database).revoke(LOCAL_CALLER, issued.token.row.id)
            with pytest.raises(AccessDenied):
                await running
