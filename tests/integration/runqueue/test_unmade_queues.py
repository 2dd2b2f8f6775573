"""A name that somebody asks for is no queue, and has no series."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis

from penstock.errors import UnknownQueue
from penstock.model import Scope
from penstock.runqueue.queue import RunQueues
from tests.integration.runqueue.task_events import events


async def test_nothing_is_told_of_a_queue_that_nobody_has_made(
    queues: RunQueues, scope: Scope, redis: Redis
) -> None:
    assert await queues.dequeue(scope, "mail") == []
    with pytest.raises(UnknownQueue, match="mail"):
        await queues.delete_queue(scope, "mail")
    with pytest.raises(UnknownQueue):
        await queues.redrive_all(scope, "mail")
    assert await events(redis, scope) == []
    assert await queues.queues(scope) == []
