"""Plan the end of each batch and the id ranges that its tasks read.

An offset holds per shard the last id read, followed (each after a space) by the ids that split the range
ending there, if several tasks read it. The split ids are part of the offset because a batch that is planned
again after a restart must have the same ranges, although the stream has changed since. The last word says
whether tasks insert the rows, for the same reason: their insert tokens differ from those of the driver. They
do so in large batches, and in all batches on a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from redis import Redis
from redis.exceptions import ResponseError

from penstock.definitions import MetricDefinition
from penstock.pipeline.source.stream_range import StreamRange
from penstock.streams.positions import START_ID, StreamState, parse_entry_id, read_position, read_stream_state

MAX_ENTRIES = 200_000
MAX_BYTES = 24 << 20
"""Limits per shard and batch while catching up. The limit in bytes is for packed entries, which are large."""

SMALL_BATCH_ENTRIES, SMALL_BATCH_BYTES = 5_000, 1 << 20
"""Up to these sizes one task reads all shards: a second task would cost more than it saves."""

MIN_PART_BYTES = 2 << 20
"""A range is not split into parts smaller than this."""

TASK_INSERT_BYTES = 8 << 20
"""From this size on, tasks insert the rows of their ranges at the same time, each with an insert of its own.
The driver inserts the rows of a smaller batch with one insert."""

ENTRY_BYTES = 110
"""Typical size of a single entry in Redis, used when Redis does not report the size of the stream."""

LAST_SEQUENCE = (1 << 64) - 1

INSERTED_BY_TASK = "inserted-by-task"
"""The last word of the offset of a range whose rows are inserted by the tasks that read them."""

Offset = dict[str, str]


class PendingRange(NamedTuple):
    """The entries of a shard for the next batch: the id of the last one, and their approximate size."""

    end: str
    bytes: int


class Planner:
    """Plans the batches of one metric. Its state is only a cache that saves calls to Redis."""

    def __init__(
        self,
        definition: MetricDefinition,
        tasks: int,
        *,
        max_bytes: int = MAX_BYTES,
        min_part_bytes: int = MIN_PART_BYTES,
        task_insert_bytes: int = TASK_INSERT_BYTES,
    ) -> None:
        self._definition = definition
        self._tasks = tasks
        self._task_insert_bytes = task_insert_bytes
        self._max_bytes = max_bytes
        self._min_part_bytes = min_part_bytes
        self._next_bytes = 0
        self.leaves_entries = False
        """Whether the last planned batch ends before the newest entry, because of a limit."""
        # Ranks of ids (entries ever added up to them), per shard, from the last read of the stream state.
        self._ranks: dict[int, dict[str, int]] = {shard: {} for shard in range(definition.shards)}

    def next_offset(
        self, redis: Redis, start: Offset, max_entries: int | None, targets: Mapping[int, str] | None
    ) -> Offset:
        """Return the end of the batch after `start`; shards without new entries keep their `start`.

        The batch has about `max_entries` entries per shard, and does not go beyond the ids in `targets`.
        """
        end = {str(shard): start.get(str(shard), START_ID) for shard in range(self._definition.shards)}
        pending = {}
        self.leaves_entries = False
        for shard, offset in enumerate(list(end.values())):
            target = targets[shard] if targets else None
            pending_range = self._pending_range(redis, shard, last_id(offset), max_entries, target)
            if pending_range is not None:
                pending[shard] = pending_range
        total = self._next_bytes = sum(pending_range.bytes for pending_range in pending.values())
        suffix = [INSERTED_BY_TASK] if total >= self._task_insert_bytes else []
        for shard, (last, size_bytes) in pending.items():
            parts = min(round(self._tasks * size_bytes / max(total, 1)), size_bytes // self._min_part_bytes)
            split_ids = self._split_ids(redis, shard, last_id(end[str(shard)]), last, parts)
            end[str(shard)] = " ".join([last, *split_ids, *suffix])
        return end

    def ranges(self, redis: Redis, start: Offset, end: Offset) -> list[StreamRange]:
        """Return the ranges of the batch, in order. Their ids depend on the offsets alone."""
        return [
            stream_range
            for shard in range(self._definition.shards)
            if end.get(str(shard), START_ID) != (offset := start.get(str(shard), START_ID))
            for stream_range in self._split_range(redis, shard, last_id(offset), end[str(shard)])
        ]

    def is_small(self, ranges: list[StreamRange]) -> bool:
        """Return whether one task should read all ranges."""
        if self._next_bytes > SMALL_BATCH_BYTES or any(
            stream_range.part_count > 1 for stream_range in ranges
        ):
            return False
        entry_counts = [_entry_count(stream_range) for stream_range in ranges]
        return None not in entry_counts and sum(filter(None, entry_counts)) <= SMALL_BATCH_ENTRIES

    def _pending_range(
        self, redis: Redis, shard: int, start: str, max_entries: int | None, target: str | None
    ) -> PendingRange | None:
        key = self._definition.stream_keys[shard]
        state = read_stream_state(redis, key)
        if state is None or parse_entry_id(state.last_id) <= parse_entry_id(start):
            return None
        target = target or state.last_id
        if parse_entry_id(target) <= parse_entry_id(start):
            return None
        start_rank = self._rank_of(redis, shard, start)
        entries = state.length if start_rank is None else min(state.length, state.added - start_rank)
        size_bytes = _stream_bytes(redis, key, state) * entries // max(state.length, 1)
        share = 1.0
        if max_entries is not None:
            share = min(max_entries / max(entries, 1), self._max_bytes / max(size_bytes, 1))
        if share < 1:
            capped = self._cap_end(redis, key, start, target, share)
            if capped is not None:
                self.leaves_entries = True
                return PendingRange(capped, int(size_bytes * share))
        if target == state.last_id:
            known = {} if start_rank is None else {start: start_rank}
            self._ranks[shard] = {**known, target: state.added}
        return PendingRange(target, size_bytes)

    def _cap_end(self, redis: Redis, key: str, start: str, target: str, share: float) -> str | None:
        """Return an id before `target`, at the edge of a bucket, with about `share` of the entries before it.

        Counting entries would cost Redis more than reading them. Ids are times, so the share of the time is a
        good estimate. A batch that is larger than planned takes more time, not more memory.
        """
        first_ms = _first_ms(redis, key, start, target)
        if first_ms is None:
            return None
        target_ms, bucket_ms = parse_entry_id(target)[0], self._definition.bucket_ms
        edge = int(first_ms + (target_ms - first_ms) * share) // bucket_ms * bucket_ms
        end_ms = max(edge, first_ms // bucket_ms * bucket_ms + bucket_ms) - 1
        return f"{end_ms}-{LAST_SEQUENCE}" if end_ms < target_ms else None

    def _split_ids(self, redis: Redis, shard: int, start: str, end: str, parts: int) -> list[str]:
        """Return ids that split the range evenly in time, at bucket edges if there are enough buckets."""
        key = self._definition.stream_keys[shard]
        first_ms = _first_ms(redis, key, start, end) if parts > 1 else None
        if first_ms is None:
            return []
        span_ms, bucket_ms = parse_entry_id(end)[0] - first_ms, self._definition.bucket_ms
        width = bucket_ms if span_ms >= parts * bucket_ms else 1
        edges = {(first_ms + span_ms * n // parts) // width * width for n in range(1, parts)}
        return [f"{edge - 1}-{LAST_SEQUENCE}" for edge in sorted(edges) if edge > first_ms]

    def _split_range(self, redis: Redis, shard: int, start: str, offset: str) -> list[StreamRange]:
        end, *split_ids = offset.split(" ")
        inserted_by_task = split_ids[-1:] == [INSERTED_BY_TASK]
        if inserted_by_task:
            split_ids.pop()
        start_rank, end_rank = (self._rank_of(redis, shard, entry_id) for entry_id in (start, end))
        bounds = list(pairwise([start, *split_ids, end]))
        key = self._definition.stream_keys[shard]
        return [
            StreamRange(
                *(shard, key, part_start, part_end, start_rank, end_rank, part, len(bounds)),
                inserted_by_task=inserted_by_task,
            )
            for part, (part_start, part_end) in enumerate(bounds)
        ]

    def _rank_of(self, redis: Redis, shard: int, entry_id: str) -> int | None:
        """Return the number of entries ever added up to `entry_id`, if this process or the group knows it."""
        if entry_id == START_ID:
            return 0
        if entry_id in self._ranks[shard]:
            return self._ranks[shard][entry_id]
        position = read_position(redis, self._definition.stream_keys[shard])
        return position.entries if position and position.id == entry_id else None


def last_id(offset: str) -> str:
    """Return the id up to which an offset has read its stream."""
    return offset.partition(" ")[0]


def _stream_bytes(redis: Redis, key: str, state: StreamState) -> int:
    """Return the approximate size of the stream in Redis."""
    try:
        return int(redis.memory_usage(key, samples=5) or 0)
    except ResponseError:  # the Redis user may not run MEMORY USAGE
        return state.length * ENTRY_BYTES


def _first_ms(redis: Redis, key: str, start: str, end: str) -> int | None:
    entries = redis.xrange(key, f"({start}", end, count=1)
    if not entries:
        return None
    entry_id = entries[0][0]
    assert isinstance(entry_id, bytes)
    return parse_entry_id(entry_id.decode())[0]


def _entry_count(stream_range: StreamRange) -> int | None:
    if stream_range.start_rank is None or stream_range.end_rank is None:
        return None
    return stream_range.end_rank - stream_range.start_rank
