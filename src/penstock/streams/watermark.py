"""How far the events of a metric have been counted, told by where the pipeline stands on its streams."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from penstock.clock import Clock, system_clock
from penstock.definitions import MetricDefinition
from penstock.streams.positions import GROUP, id_parts

ON_THE_WAY_S = 1.0
"""How long an event may be on its way into a stream: brokers emit twice a second and gather for a moment."""


async def counted_until(
    client: Redis, definition: MetricDefinition, clock: Clock = system_clock
) -> float | None:
    """The time up to which every event is in ClickHouse, in seconds; None if the pipeline never counted any.

    To be asked before ClickHouse is. Events that a broker could not hand to Redis yet are not known here.
    Raises redis.RedisError if Redis is away.
    """
    now = clock()
    reached = [await _reached(client, key, now) for key in definition.stream_keys]
    if None in reached:
        return None
    return min(until for until in reached if until is not None) - ON_THE_WAY_S


async def _reached(client: Redis, key: str, now: float) -> float | None:
    try:
        stream: dict[Any, Any] = await client.xinfo_stream(key)
        groups: list[dict[Any, Any]] = await client.xinfo_groups(key)
    except ResponseError as error:
        if "no such key" in str(error):
            return now  # nothing was ever emitted to it
        raise
    group = next((group for group in groups if _text(group["name"]) == GROUP), None)
    if group is None:
        return now if not stream["length"] else None
    position, newest = _text(group["last-delivered-id"]), _text(stream["last-generated-id"])
    if id_parts(position) >= id_parts(newest):
        return now
    return id_parts(position)[0] / 1000


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
