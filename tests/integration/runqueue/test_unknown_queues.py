"""Calls that name an unknown queue do not create it and emit no metrics."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis

from penstock.errors import UnknownQueue
from penstock.model import Scope
from penstock.runqueue.queue import RunQueues
from tests.integration.runqueue.emitted_events import read_emitted_events


async def test_an_unknown_queue_emits_no_metrics(queues: RunQueues, scope: Scope, redis: Redis) -> None:
    assert await queues.dequeue(scope, "mail") == []
    with pytest.raises(UnknownQueue, match="mail"):
        await queues.delete_queue(scope, "mail")
    with pytest.raises(UnknownQueue):
        await queues.redrive_all(scope, "mail")
    assert await read_emitted_events(redis, scope) == []
    assert await queues.list_queues(scope) == []
