"""What the scripts emitted, as the pipeline reads it."""

from __future__ import annotations

from redis.asyncio import Redis

from penstock.definitions import QUEUE
from penstock.model import Scope
from penstock.streams.wire import Event, read_events


async def events(redis: Redis, scope: Scope, queue: str | None = None) -> list[Event]:
    """All events of an environment, or of one queue in it, in order. Fails on one that cannot be counted."""
    found = []
    for key in QUEUE.stream_keys:
        for entry_id, fields in await redis.xrange(key):
            if fields.get(b"org") != scope.organization.encode():
                continue
            [event] = read_events(QUEUE, entry_id, list(fields.items()))
            assert isinstance(event, Event), event
            if queue is None or event.dimensions[3] == queue:
                found.append(event)
    return found


def total(found: list[Event], counter: str) -> int:
    return sum(event.counters.get(counter, 0) for event in found)
