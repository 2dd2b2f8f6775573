"""The Queen client with the tokens of a broker that requires them."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from queen import Queen

from penstock.access.token_service import AccessTokens, NewToken
from penstock.caller import LOCAL_CALLER
from penstock.durable.pool import Database
from tests.e2e.queen_client.client_versions import RETRIES, load_client
from tests.e2e.queen_client.conftest import create_database
from tests.e2e.queen_client.queen_messages import payloads
from tests.integration.client.broker_server import run_broker


class GuardedBroker:
    """A broker that requires tokens, and clients of it with tokens."""

    def __init__(self, url: str, tokens: AccessTokens, client_version: str) -> None:
        self.url = url
        self._tokens = tokens
        self._client_version = client_version

    async def create_secret(self, *scopes: str, queues: list[str] | None = None) -> str:
        token = NewToken(name="-".join(("t", *scopes)), scopes=list(scopes), queues=queues)
        return (await self._tokens.create(LOCAL_CALLER, token)).secret

    @asynccontextmanager
    async def connect(self, secret: str | None) -> AsyncIterator[Queen]:
        # The client replaces the signal handlers of the process; restore them afterwards.
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        options = RETRIES[self._client_version]
        queen = load_client(self._client_version).Queen(url=self.url, bearer_token=secret, **options)
        async with queen as client:
            yield client
        for number, handler in handlers.items():
            signal.signal(number, handler)


@pytest_asyncio.fixture
async def broker(postgres_url: str, client_version: str) -> AsyncIterator[GuardedBroker]:
    database_url = await create_database(postgres_url)
    database = Database(database_url, 2)
    try:
        async with run_broker(database_url, metrics_enabled=False, authentication="required") as url:
            yield GuardedBroker(url, AccessTokens(database), client_version)
    finally:
        await database.close()


async def test_the_client_works_with_its_bearer_token(broker: GuardedBroker) -> None:
    secret = await broker.create_secret("read", "produce", "consume", "configure")
    async with broker.connect(secret) as queen:
        await queen.queue("orders").create()
        await queen.queue("orders").push([{"data": {"n": 1}}, {"data": {"n": 2}}])
        messages = await queen.queue("orders").batch(2).wait(False).pop()
        assert payloads(messages) == [{"n": 1}, {"n": 2}]
        assert (await queen.ack(messages))["success"] is True
        await queen.queue("orders").push([{"data": {"n": 3}}])
        received: list[object] = []

        async def handle(message: Any) -> None:
            received.append(message["data"])

        await queen.queue("orders").group("workers").limit(3).idle_millis(2_000).each().consume(handle)
        assert received == [{"n": 1}, {"n": 2}, {"n": 3}]


@pytest.mark.parametrize("secret", [None, "pk_unknown", "a.jwt.of.queen"])
async def test_the_client_is_refused_without_a_valid_token(broker: GuardedBroker, secret: str | None) -> None:
    async with broker.connect(secret) as queen:
        with pytest.raises(Exception, match="token"):
            await queen.queue("orders").push([{"data": 1}])


async def test_a_token_is_limited_to_its_scopes_and_queues(broker: GuardedBroker) -> None:
    secret = await broker.create_secret("produce", queues=["orders-*"])
    async with broker.connect(secret) as queen:
        [pushed] = await queen.queue("orders-eu").push([{"data": 1}])
        assert pushed["status"] == "queued"
        assert await queen.queue("orders-eu").wait(False).pop() == [], "the client prints the error of a pop"
        with pytest.raises(Exception, match="limited to the queues"):
            await queen.queue("invoices").push([{"data": 1}])
