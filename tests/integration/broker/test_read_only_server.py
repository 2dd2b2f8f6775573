"""A server that stops taking writes while connections to it stay open, as in a planned switchover."""

from __future__ import annotations

from contextlib import AsyncExitStack

import asyncpg
import pytest

from penstock.broker.messages import NewMessage
from penstock.errors import DatabaseUnavailable, OutcomeUnknown
from penstock.model import DEFAULT_SCOPE
from tests.integration.broker.brokers import Brokers
from tests.waiting import wait_until_async


def message(number: int) -> NewMessage:
    return NewMessage("orders", "p", b"1", f"id-{number}")


async def test_a_primary_that_becomes_read_only_is_an_outage(brokers: Brokers) -> None:
    """Writes on open connections fail. These are replaced, and no request ends with status 500."""
    broker = await brokers.start()
    database = broker.database
    await broker.push(DEFAULT_SCOPE, [message(0)])
    administrator = await asyncpg.connect(brokers.url)
    name = await administrator.fetchval("SELECT quote_ident(current_database())")
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(database.connection()) for _ in range(database.size)]
        await administrator.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        for connection in connections:  # all of the pool, before a background task can use one
            await connection.execute("SET default_transaction_read_only = on")

    with pytest.raises(DatabaseUnavailable) as caught:
        await broker.push(DEFAULT_SCOPE, [message(1)])
    assert not isinstance(caught.value, OutcomeUnknown), "the message was surely not stored"
    assert await database.outage.confirm(), "a server that takes no writes is an outage"

    await administrator.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")

    async def is_back() -> bool:
        await database.ping()
        return True

    await wait_until_async(is_back, 20, "the broker uses the server again")
    (result,) = await broker.push(DEFAULT_SCOPE, [message(1)])
    assert result.status == "queued"
    await administrator.close()
