"""The watermark of a metric: the time up to which the pipeline has counted its events."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from penstock.clock import Clock, system_clock
from penstock.definitions import MetricDefinition
from penstock.streams.positions import CONSUMER_GROUP, decode_text, parse_entry_id


async def read_watermark(
    client: Redis, definition: MetricDefinition, clock: Clock = system_clock
) -> float | None:
    """Return the time in seconds up to which every event is in ClickHouse; None if none was ever counted.

    Read it before ClickHouse. It does not cover events that a broker could not send to Redis yet. Raises
    redis.RedisError if Redis is unreachable.
    """
    now_s = clock()
    watermarks = [await _read_stream_watermark(client, key, now_s) for key in definition.stream_keys]
    if None in watermarks:
        return None
    return min(watermark for watermark in watermarks if watermark is not None) - definition.max_emit_delay_s


async def read_clock_lead_s(
    client: Redis, definition: MetricDefinition, clock: Clock = system_clock
) -> float:
    """Return how far the newest event is dated after now; 0 if it is not.

    Redis dates events with its clock. If that was set back, further events get the time of the newest one
    until the clock has reached it. Raises redis.RedisError if Redis is unreachable.
    """
    newest_ms = 0
    for key in definition.stream_keys:
        try:
            stream: dict[str, Any] = await client.xinfo_stream(key)
        except ResponseError as error:
            if "no such key" not in str(error):
                raise
        else:
            newest_ms = max(newest_ms, parse_entry_id(decode_text(stream["last-generated-id"]))[0])
    return max(0.0, newest_ms / 1000 - clock())


async def _read_stream_watermark(client: Redis, key: str, now_s: float) -> float | None:
    try:
        stream: dict[str, Any] = await client.xinfo_stream(key)
        groups: list[dict[str, Any]] = await client.xinfo_groups(key)
    except ResponseError as error:
        if "no such key" in str(error):
            return now_s  # no event was ever emitted to it
        raise
    group = next((group for group in groups if decode_text(group["name"]) == CONSUMER_GROUP), None)
    if group is None:
        return now_s if not stream["length"] else None
    position = decode_text(group["last-delivered-id"])
    if parse_entry_id(position) >= parse_entry_id(decode_text(stream["last-generated-id"])):
        return now_s
    # Not the position itself: after an idle time the first unread entry is much younger.
    unread: Any = await client.xrange(key, min=f"({position}", count=1)
    return parse_entry_id(decode_text(unread[0][0]))[0] / 1000 if unread else now_s
