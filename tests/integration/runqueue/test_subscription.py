"""The subscription through which other processes wake waiting dequeues."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

import pytest
from chaos.proxy import FaultProxy
from redis.asyncio import Redis

from penstock.caller import LOCAL_CALLER
from penstock.runqueue.connection import connect
from penstock.runqueue.keys import WAKE_CHANNEL
from penstock.runqueue.task_wakeups import ANY_ENVIRONMENT, TaskWaiter, TaskWakeups
from tests.waiting import wait_until_async

PING_INTERVAL_S = 0.2


async def test_a_connection_that_fails_without_an_error_is_replaced(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As when the host of the process is cut off: what is sent gets no answer, and nothing is closed."""
    parts = urlsplit(redis_url)
    assert parts.port is not None
    proxy = FaultProxy(parts.port)
    await proxy.start()
    client = connect(
        urlunsplit(parts._replace(netloc=parts.netloc.replace(str(parts.port), str(proxy.port))))
    )
    observer = Redis.from_url(redis_url)
    wakeups = TaskWakeups(redis_url, client, ping_interval_s=PING_INTERVAL_S)
    waiter = TaskWaiter(ANY_ENVIRONMENT, LOCAL_CALLER)

    async def subscribers() -> int:
        [[_, count]] = await observer.pubsub_numsub(WAKE_CHANNEL)
        return int(count)

    try:
        before = await subscribers()
        await wakeups.start()

        async def is_subscribed() -> bool:
            return await subscribers() > before

        await wait_until_async(is_subscribed, 10, "the process subscribes")
        wakeups.add(waiter)
        proxy.drop()

        async def is_given_up() -> bool:
            return "no answer for 0.4 s" in caplog.text

        await wait_until_async(is_given_up, 10, "the process gives the connection up")
        assert not waiter.is_woken
        proxy.heal()

        async def is_woken() -> bool:
            return waiter.is_woken

        await wait_until_async(is_woken, 10, "the waiter retries, because it may have missed a message")
    finally:
        wakeups.remove(waiter)
        await wakeups.stop()
        await client.aclose()
        await observer.aclose()
        await proxy.close()
