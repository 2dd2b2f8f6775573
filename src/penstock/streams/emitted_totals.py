"""Totals of the counts that entered the streams, in one Redis hash; on a cluster, in one hash per stream.

Emitters add to the totals in the script that adds the events. So the totals and the streams agree, whichever
emitter was killed. A comparison with the totals of PostgreSQL shows what was lost before it was emitted. The
hash expires when nothing is emitted for a day; then a new one starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any, Final

from redis.asyncio import Redis

from penstock.definitions import QUEUE, STREAM_PREFIX, MetricDefinition
from penstock.redis_clients import is_cluster
from penstock.shards import shard_of
from penstock.streams.packing import Fields

TOTALS_KEY: Final = f"{STREAM_PREFIX}:totals"
FIRST_ID_FIELD: Final = "first_id"
"""Queues with a larger id are younger than the hash, so their totals began at 0."""

_CORRECT_TOTAL = resources.files("penstock.streams").joinpath("lua/correct_total.lua").read_text()


def stream_totals_key(stream: str) -> str:
    """Return the key of the totals of one stream of a cluster, in the slot of the stream."""
    return f"{TOTALS_KEY}:{{{stream}}}"


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
        self._is_cluster = is_cluster(client)
        streams = QUEUE.stream_keys  # the only metric with totals
        self._keys = [*map(stream_totals_key, streams)] if self._is_cluster else [TOTALS_KEY]

    async def begin(self, newest_queue_id: int) -> int:
        """Start the hash if there is none; return the id after which queues are younger than the hash."""
        first_ids = []
        for key in self._keys:
            await self._client.hsetnx(key, FIRST_ID_FIELD, newest_queue_id)
            first_ids.append(int(await self._client.hget(key, FIRST_ID_FIELD) or 0))
        return max(first_ids)

    async def read(self, fields: Sequence[str]) -> list[bytes | None]:
        """Return the values of fields; None for those that have none."""
        if not fields:
            return []
        hashes: list[Any] = [await self._client.hmget(key, list(fields)) for key in self._keys]
        # A queue has one stream, so at most one hash has the field.
        return [
            next((value for value in values if value is not None), None)
            for values in zip(*hashes, strict=True)
        ]

    async def mark_aligned(self, queue_id: int) -> None:
        await self._client.hset(self._keys[0], aligned_field(queue_id), 1)

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
        totals_key = stream_totals_key(stream) if self._is_cluster else TOTALS_KEY
        corrected: Any = await self._client.eval(_CORRECT_TOTAL, 2, totals_key, stream, *arguments)
        return bool(corrected)

    async def clear(self) -> None:
        """Forget all totals, because counts are not emitted now."""
        for key in self._keys:
            await self._client.delete(key)
