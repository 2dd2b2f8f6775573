"""A broker that is not busy executes a burst, whatever the traffic before and however far the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import pytest
import pytest_asyncio
from bench.delay_proxy import ProxyConnection

from penstock.broker.broker import Broker
from penstock.broker.messages import PopResult
from penstock.broker.overload.load import Decision
from tests.integration.broker.brokers import Brokers, ack, pop, push
from tests.waiting import wait_until_async

DELAY_S = 0.01
"""Added to the way to PostgreSQL and to the way back."""
BURST = 50


@asynccontextmanager
async def delayed_url(url: str) -> AsyncIterator[str]:
    """Run a proxy that delays all data between broker and database; yields the URL that goes through it."""
    target = urlsplit(url)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ProxyConnection(DELAY_S, target.port), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    credentials = target.netloc.rpartition("@")[0]
    try:
        yield urlunsplit(target._replace(netloc=f"{credentials}@127.0.0.1:{port}"))
    finally:
        server.close()


@pytest_asyncio.fixture
async def far_broker(database_url: str) -> AsyncIterator[Broker]:
    """A broker whose database is 20 ms away."""
    async with delayed_url(database_url) as url:
        brokers = Brokers(url)
        yield await brokers.start()
        await brokers.stop()


async def no_traffic(broker: Broker) -> None:
    """The burst is the first thing that the broker gets to do."""


async def steady_traffic(broker: Broker) -> None:
    """Forty requests of each kind, one after the other."""
    for number in range(40):
        await push(broker, str(number))
        await ack(broker, await pop(broker))


async def slow_traffic(broker: Broker) -> None:
    """A request of each kind now and then, each longer ago than the load is measured."""
    for number in range(4):
        await push(broker, str(number))
        await ack(broker, await pop(broker))
        await wait_for_measurements(broker, 3)


async def quiet_after_traffic(broker: Broker) -> None:
    await steady_traffic(broker)
    await wait_for_measurements(broker, 10)


async def wait_for_measurements(broker: Broker, count: int) -> None:
    """Wait until the load has been measured this often."""
    target = broker.load.measurements + count

    async def is_measured() -> bool:
        return broker.load.measurements >= target

    await wait_until_async(is_measured, 60, "the load is measured")


async def execute_burst(
    broker: Broker, kind: str, request: Callable[[int], Awaitable[object]]
) -> list[object]:
    """Send requests all at once, as their routes do; none may be deferred or refused."""

    async def send(number: int) -> object:
        assert broker.admit(kind) is Decision.EXECUTE
        return await request(number)

    return await asyncio.gather(*(send(number) for number in range(BURST)))


@pytest.mark.parametrize("traffic", [no_traffic, steady_traffic, slow_traffic, quiet_after_traffic])
async def test_a_burst_is_executed_with_the_database_20_ms_away(
    far_broker: Broker, traffic: Callable[[Broker], Awaitable[None]]
) -> None:
    await traffic(far_broker)
    await execute_burst(far_broker, "push", lambda n: push(far_broker, str(n)))
    await execute_burst(far_broker, "push", lambda n: push(far_broker, str(n), partition=f"p{n}"))
    popped = await execute_burst(far_broker, "pop", lambda _: pop(far_broker))
    leased = [result for result in popped if isinstance(result, PopResult) and result.messages]
    assert len(leased) == BURST
    await execute_burst(far_broker, "ack", lambda n: ack(far_broker, leased[n]))
    assert far_broker.load.waiting == 0, "nothing was deferred to keep the order"


async def test_pushes_to_new_partitions_create_them_together_and_are_executed(far_broker: Broker) -> None:
    numbers = iter(range(500))
    highest_pool_load = 0.0

    async def call() -> None:
        nonlocal highest_pool_load
        for number in numbers:
            assert far_broker.admit("push") is Decision.EXECUTE
            [result] = await push(far_broker, str(number), partition=f"p{number}")
            assert (result.status, result.deferral) == ("queued", None)
            highest_pool_load = max(highest_pool_load, far_broker.load.pool.value)

    await asyncio.gather(*(call() for _ in range(BURST)))
    created = far_broker.batchers["create"].stats
    assert (created.requests, created.items) == (500, 500)
    assert created.requests / created.batches > BURST / 5, "the callers share the calls"
    assert highest_pool_load <= 0.5, "no operation waited for a connection"
