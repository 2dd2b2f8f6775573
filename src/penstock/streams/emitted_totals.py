"""Totals of the counts that entered the streams, in one Redis hash.

Emitters add to the totals in the script that adds the events. So the totals and the streams agree, whichever
emitter was killed. A comparison with the totals of PostgreSQL shows what was lost before it was emitted. The
hash expires when nothing is emitted for a day; then a new one starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any, Final

from redis.asyncio import Redis

from penstock.definitions import STREAM_PREFIX, MetricDefinition
from penstock.shards import shard_of
from penstock.streams.packing import Fields

TOTALS_KEY: Final = f"{STREAM_PREFIX}:totals"
FIRST_ID_FIELD: Final = "first_id"
"""Queues with a larger id are younger than the hash, so their totals began at 0."""

_CORRECT_TOTAL = resources.files("penstock.streams").joinpath("lua/correct_total.lua").read_text()


def total_field(queue_id: int, group: str, counter: str) -> str:
    """Return the field of a counter (its wire name) of a queue and group."""
    return f"{queue_id}:{counter}:{group}"


def aligned_field(queue_id: int) -> str:
    """Return the field that is set once the totals of a queue that is older than the hash are right."""
    return f"{queue_id}:aligned"


class EmittedTotals:
    """Reads and corrects the totals. Every method raises redis.RedisError."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._script = client.register_script(_CORRECT_TOTAL)

    async def begin(self, newest_queue_id: int) -> int:
        """Start the hash if there is none; return the id after which queues are younger than the hash."""
        await self._client.hsetnx(TOTALS_KEY, FIRST_ID_FIELD, newest_queue_id)
        return int(await self._client.hget(TOTALS_KEY, FIRST_ID_FIELD) or 0)

    async def read(self, fields: Sequence[str]) -> list[bytes | None]:
        """Return the values of fields; None for those that have none."""
        values: Any = await self._client.hmget(TOTALS_KEY, list(fields)) if fields else []
        return list(values)

    async def mark_aligned(self, queue_id: int) -> None:
        await self._client.hset(TOTALS_KEY, aligned_field(queue_id), 1)

    async def correct(
        self,
        field: str,
        expected: bytes | None,
        amount: int,
        definition: MetricDefinition,
        shard_key: str,
        event: Fields | None = None,
    ) -> bool:
        """Add the amount to a total, and the event to its stream, unless the total has changed meanwhile."""
        stream = definition.stream_keys[shard_of(shard_key, definition.shards)]
        arguments: list[str | int | bytes] = [field, expected or b"", amount, definition.max_stream_length]
        for name, value in (event or {}).items():
            arguments += (name, value)
        corrected = await self._script(keys=[TOTALS_KEY, stream], args=arguments)
        return bool(corrected)

    async def clear(self) -> None:
        """Forget all totals, because counts are not emitted now."""
        await self._client.delete(TOTALS_KEY)
