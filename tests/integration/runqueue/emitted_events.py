"""Read the metric events that the scripts emitted, as the pipeline does."""

from __future__ import annotations

from typing import cast

from redis.asyncio import Redis

from penstock.definitions import QUEUE
from penstock.model import Scope
from penstock.streams.wire import Event, read_events


async def read_emitted_events(redis: Redis, scope: Scope, queue: str | None = None) -> list[Event]:
    """Return all events of an environment, or of one queue in it, in order. Fails on an invalid event."""
    events = []
    for key in QUEUE.stream_keys:
        for entry_id, fields in await read_entries(redis, key):
            if fields.get(b"org") != scope.organization.encode():
                continue
            [event] = read_events(QUEUE, entry_id, list(fields.items()))
            assert isinstance(event, Event), event
            if queue is None or event.dimensions[3] == queue:
                events.append(event)
    return events


async def read_entries(redis: Redis, key: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    entries = await redis.xrange(key)
    return cast("list[tuple[bytes, dict[bytes, bytes]]]", entries)


def sum_counter(events: list[Event], counter: str) -> int:
    return sum(event.counters.get(counter, 0) for event in events)
