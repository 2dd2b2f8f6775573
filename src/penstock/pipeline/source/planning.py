"""Where a batch ends, and which ranges of ids its tasks read.

An offset holds per shard the last id read, and behind it (each after a space) the ids that divide the range
which ends there, if several tasks are to read it. They are part of the offset because a batch that is planned
again has to come out the same, and the stream will have changed by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from redis import Redis
from redis.exceptions import ResponseError

from penstock.definitions import MetricDefinition
from penstock.pipeline.source.stream_range import StreamRange
from penstock.streams.positions import BEGINNING, StreamState, id_parts, read_position, stream_state

MOST_ENTRIES = 200_000
MOST_BYTES = 24 << 20
"""Per shard and batch while catching up. In bytes too: packed entries are few and large."""

SMALL_BATCH, SMALL_BYTES = 5_000, 1 << 20
"""Up to here one task reads all shards: a second one would cost more than it saves."""

PIECE_BYTES = 2 << 20
"""A range is not divided into less than this."""

ENTRY_BYTES = 110
"""A single entry's usual size in Redis, where Redis does not tell."""

LAST_SEQUENCE = (1 << 64) - 1

Offset = dict[str, str]


class Waiting(NamedTuple):
    """What a shard has for the next batch: up to which id, and roughly how much."""

    end: str
    bytes: int


class Planner:
    """Plans the batches of one metric. Asks Redis; remembers only what saves asking again."""

    def __init__(self, definition: MetricDefinition, tasks: int) -> None:
        self._definition = definition
        self._tasks = tasks
        self._next_bytes = 0
        # Entries ever added up to an id, per shard: what the last look at the stream told.
        self._entries: dict[int, dict[str, int]] = {shard: {} for shard in range(definition.shards)}

    def next_offset(
        self, redis: Redis, start: Offset, most: int | None, goals: Mapping[int, str] | None
    ) -> Offset:
        """The end of the batch after `start`; `start` itself for shards with nothing new.

        `most` entries per shard, roughly; no further than `goals`, if there are any.
        """
        end = {str(shard): start.get(str(shard), BEGINNING) for shard in range(self._definition.shards)}
        waiting = {}
        for shard, offset in enumerate(list(end.values())):
            found = self._waiting(redis, shard, last_id(offset), most, goals[shard] if goals else None)
            if found is not None:
                waiting[shard] = found
        total = self._next_bytes = sum(found.bytes for found in waiting.values())
        for shard, found in waiting.items():
            pieces = min(round(self._tasks * found.bytes / max(total, 1)), found.bytes // PIECE_BYTES)
            cuts = self._cuts(redis, shard, last_id(end[str(shard)]), found.end, pieces)
            end[str(shard)] = " ".join([found.end, *cuts])
        return end

    def ranges(self, redis: Redis, start: Offset, end: Offset) -> list[StreamRange]:
        """What the batch's tasks read, in order. The ids follow from the offsets alone."""
        return [
            wanted
            for shard in range(self._definition.shards)
            if end.get(str(shard), BEGINNING) != (offset := start.get(str(shard), BEGINNING))
            for wanted in self._pieces(redis, shard, last_id(offset), end[str(shard)])
        ]

    def is_small(self, ranges: list[StreamRange]) -> bool:
        """Whether one task had better read all of it."""
        if self._next_bytes > SMALL_BYTES or any(wanted.pieces > 1 for wanted in ranges):
            return False
        sizes = [_size(wanted) for wanted in ranges]
        return None not in sizes and sum(filter(None, sizes)) <= SMALL_BATCH

    def _waiting(
        self, redis: Redis, shard: int, start: str, most: int | None, goal: str | None
    ) -> Waiting | None:
        key = self._definition.stream_keys[shard]
        state = stream_state(redis, key)
        if state is None or id_parts(state.last_id) <= id_parts(start):
            return None
        goal = goal or state.last_id
        if id_parts(goal) <= id_parts(start):
            return None
        read = self._entries_at(redis, shard, start)
        entries = state.length if read is None else min(state.length, state.added - read)
        size = _bytes(redis, key, state) * entries // max(state.length, 1)
        share = 1.0 if most is None else min(most / max(entries, 1), MOST_BYTES / max(size, 1))
        if share < 1:
            capped = self._capped(redis, key, start, goal, share)
            if capped is not None:
                return Waiting(capped, int(size * share))
        if goal == state.last_id:
            known = {} if read is None else {start: read}
            self._entries[shard] = {**known, goal: state.added}
        return Waiting(goal, size)

    def _capped(self, redis: Redis, key: str, start: str, goal: str, share: float) -> str | None:
        """An id before `goal` with roughly `share` of the entries before it, at the edge of a bucket.

        Counting entries would cost Redis more than reading them; ids are times, and that is near enough. A
        batch that comes out too large takes longer, not more memory.
        """
        first_ms = _first_ms(redis, key, start, goal)
        if first_ms is None:
            return None
        goal_ms, bucket_ms = id_parts(goal)[0], self._definition.bucket_ms
        edge = int(first_ms + (goal_ms - first_ms) * share) // bucket_ms * bucket_ms
        end_ms = max(edge, first_ms // bucket_ms * bucket_ms + bucket_ms) - 1
        return f"{end_ms}-{LAST_SEQUENCE}" if end_ms < goal_ms else None

    def _cuts(self, redis: Redis, shard: int, start: str, end: str, pieces: int) -> list[str]:
        """Ids that divide the range evenly in time: at edges of buckets, or anywhere if it has too few."""
        key = self._definition.stream_keys[shard]
        first_ms = _first_ms(redis, key, start, end) if pieces > 1 else None
        if first_ms is None:
            return []
        span_ms, bucket_ms = id_parts(end)[0] - first_ms, self._definition.bucket_ms
        width = bucket_ms if span_ms >= pieces * bucket_ms else 1
        edges = {(first_ms + span_ms * n // pieces) // width * width for n in range(1, pieces)}
        return [f"{edge - 1}-{LAST_SEQUENCE}" for edge in sorted(edges) if edge > first_ms]

    def _pieces(self, redis: Redis, shard: int, start: str, offset: str) -> list[StreamRange]:
        end, *cuts = offset.split(" ")
        before, after = (self._entries_at(redis, shard, entry_id) for entry_id in (start, end))
        places = list(pairwise([start, *cuts, end]))
        key = self._definition.stream_keys[shard]
        return [
            StreamRange(shard, key, first, last, before, after, piece, len(places))
            for piece, (first, last) in enumerate(places)
        ]

    def _entries_at(self, redis: Redis, shard: int, entry_id: str) -> int | None:
        """Entries ever added up to `entry_id`, if this process saw it or the group stands there."""
        if entry_id == BEGINNING:
            return 0
        if entry_id in self._entries[shard]:
            return self._entries[shard][entry_id]
        position = read_position(redis, self._definition.stream_keys[shard])
        return position.entries if position and position.id == entry_id else None


def last_id(offset: str) -> str:
    """The id up to which an offset has read its stream."""
    return offset.partition(" ")[0]


def _bytes(redis: Redis, key: str, state: StreamState) -> int:
    """The stream's size in Redis, roughly."""
    try:
        return int(redis.memory_usage(key, samples=5) or 0)
    except ResponseError:  # not everybody may ask
        return state.length * ENTRY_BYTES


def _first_ms(redis: Redis, key: str, start: str, end: str) -> int | None:
    first: Any = redis.xrange(key, f"({start}", end, count=1)
    return id_parts(bytes(first[0][0]).decode())[0] if first else None


def _size(wanted: StreamRange) -> int | None:
    if wanted.start_entries is None or wanted.end_entries is None:
        return None
    return wanted.end_entries - wanted.start_entries
