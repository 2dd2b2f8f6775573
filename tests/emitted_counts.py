"""Sum up the counts of the events in the streams of the queue metric."""

from __future__ import annotations

from collections import Counter
from typing import cast

from redis.asyncio import Redis

from penstock.definitions import QUEUE
from penstock.streams.wire import Event, read_events


async def read_queue_events(redis: Redis) -> list[Event]:
    """Return all events in the streams, in the order of each stream."""
    events: list[Event] = []
    for key in QUEUE.stream_keys:
        for entry_id, fields in cast("list[tuple[bytes, dict[bytes, bytes]]]", await redis.xrange(key)):
            results = read_events(QUEUE, entry_id, list(fields.items()))
            events += [result for result in results if isinstance(result, Event)]
    return events


async def sum_emitted_counts(redis: Redis, queue: str) -> Counter[str]:
    """Return the sums of the counters of one queue over all its groups."""
    counts: Counter[str] = Counter()
    for event in await read_queue_events(redis):
        if event.dimensions[3] == queue:
            counts.update(event.counters)
    return counts
