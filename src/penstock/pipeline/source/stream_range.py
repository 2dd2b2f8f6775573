"""Read a range of ids from one stream and fold it while reading.

The range (start, end] is fixed before reading begins. So a task that is restarted reads the same rows, as
long as the stream still holds the entries. Memory is bounded by the number of distinct dimensions and
buckets, not by the number of entries: each chunk is folded before the next one is fetched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from redis import Redis
from redis.exceptions import ResponseError

from penstock.definitions import MetricDefinition
from penstock.pipeline.batch_inserts import InsertedRows
from penstock.pipeline.source.entry_chunk import EntryChunk, limit_kept
from penstock.pipeline.source.fold import fold
from penstock.pipeline.source.range_parts import PartCounts
from penstock.pipeline.source.raw_connection import RawConnection
from penstock.pipeline.source.resp_columns import read_xrange_reply
from penstock.pipeline.source.rows import Rows, concatenate
from penstock.streams.positions import parse_entry_id
from penstock.streams.wire import LostEvents, RejectedEvent, RejectionReason

MIN_CHUNK_ENTRIES = 10
FOLD_AGAIN_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """The size of one XRANGE reply. Both limits apply: packed entries are much larger than single ones."""

    max_entries: int = 10_000
    first_entries: int = 500
    """Entries of the first chunk, when their size is not known yet."""
    max_bytes: int = 4 << 20


DEFAULT_CHUNK_LIMITS = ChunkLimits()


@dataclass(frozen=True, slots=True)
class StreamRange:
    """The entries after `start` up to and including `end` of one stream.

    The range may be one of `part_count` parts of a larger range, each read by one task. `start_rank` and
    `end_rank` belong to the larger range: the number of entries ever added up to its start and end, if known.
    Entries that are missing between the two were trimmed.
    """

    shard: int
    key: str
    start: str
    end: str
    start_rank: int | None = None
    end_rank: int | None = None
    part: int = 0
    part_count: int = 1
    inserted_by_task: bool = False
    """Whether the task that reads the range also inserts its rows; otherwise the driver does."""

    @property
    def name(self) -> str:
        """The name of the range, which no other range of its batch has."""
        return f"{self.shard}-{self.start}"


@dataclass(slots=True)
class RangeContent:
    """The content of a range."""

    counts: PartCounts
    rows: Rows | None = None
    inserted: InsertedRows | None = None
    """What the task inserted of `rows`, if it did."""
    set_aside: Counter[RejectionReason] = field(default_factory=Counter)
    examples: dict[RejectionReason, str] = field(default_factory=dict)
    rejected: list[RejectedEvent] = field(default_factory=list)
    """The events that were set aside, up to the limits of `limit_kept`."""
    lost: list[LostEvents] = field(default_factory=list)
    """Reports of emitters about events that they dropped."""


def read_range(
    connection: RawConnection,
    definition: MetricDefinition,
    stream_range: StreamRange,
    write_events: Callable[[Rows], None] | None = None,
    limits: ChunkLimits = DEFAULT_CHUNK_LIMITS,
) -> RangeContent:
    """Read and fold the whole range, and count the entries that are missing from it.

    Calls `write_events` with the single events, chunk by chunk, before they are folded.
    """
    counts = PartCounts(stream_range.start_rank, stream_range.end_rank)
    if stream_range.part == 0:
        counts.reached_rank = stream_range.start_rank
    content = RangeContent(counts)
    pending: list[Rows] = []
    fold_again_rows = FOLD_AGAIN_ROWS
    after, complete, chunk_size = stream_range.start, False, _ChunkSize(limits)
    gaps: list[_Gap] = []
    while not complete:
        if stream_range.end_rank is not None:
            chunk, complete = _read_chunk(connection, definition, stream_range, after, chunk_size)
        else:
            chunk, complete, rank = _read_chunk_with_rank(
                connection, definition, stream_range, after, chunk_size, counts.reached_rank
            )
            if rank is not None:
                counts.learn_rank(rank)
        counts.add_entries(chunk.entries)
        content.set_aside += chunk.set_aside
        content.examples = {**chunk.examples, **content.examples}
        if chunk.rejected:
            content.rejected = limit_kept([*content.rejected, *chunk.rejected])
        content.lost += chunk.lost
        gaps.append(_Gap(after, chunk.first_id.decode() if chunk.first_id else None))
        if len(chunk.rows):
            if write_events is not None:
                write_events(chunk.rows)
            pending.append(fold(chunk.rows, definition.bucket_ms))
        if sum(map(len, pending)) > fold_again_rows:
            pending = [fold(concatenate(pending), definition.bucket_ms)]
            # When folding no longer shrinks the rows, do not fold again with every chunk.
            fold_again_rows = max(FOLD_AGAIN_ROWS, 2 * len(pending[0]))
        after = chunk.last_id.decode() if chunk.last_id else after
    if pending:
        content.rows = fold(concatenate(pending), definition.bucket_ms) if len(pending) > 1 else pending[0]
    if stream_range.part_count > 1 or counts.may_miss_entries:
        counts.gap_ms = _find_gap(connection.client, stream_range, gaps)
    return content


class _Gap(NamedTuple):
    """Ids between which entries may be missing: the last one before, and the first one that survived."""

    after: str
    first: str | None


def _find_gap(client: Redis, stream_range: StreamRange, gaps: Sequence[_Gap]) -> tuple[int, int] | None:
    """Return the times between which entries may have been trimmed; None if trimming has not reached the
    range.

    Trimming removes the oldest entries first. So nothing is missing before an entry that is younger than the
    oldest one.
    """
    _, oldest_id = _removed_and_oldest(client, stream_range.key)
    oldest = None if oldest_id is None else parse_entry_id(oldest_id)
    ends = [(gap, parse_entry_id(gap.first or stream_range.end)) for gap in gaps]
    reached = [(gap, end) for gap, end in ends if oldest is None or end <= oldest]
    if not reached:
        return None
    return min(parse_entry_id(gap.after)[0] for gap, _ in reached), max(end[0] for _, end in reached)


class _ChunkSize:
    """The number of entries to request next, adapted to the size of the last reply."""

    def __init__(self, limits: ChunkLimits) -> None:
        self.limits = limits
        self.entries = min(limits.max_entries, limits.first_entries)

    def adapt(self, entries: int, size_bytes: int) -> None:
        limits = self.limits
        self.entries = max(
            MIN_CHUNK_ENTRIES, min(limits.max_entries, limits.max_bytes * entries // size_bytes)
        )


def _read_chunk(
    connection: RawConnection,
    definition: MetricDefinition,
    stream_range: StreamRange,
    after: str,
    chunk_size: _ChunkSize,
) -> tuple[EntryChunk, bool]:
    """Read one chunk; returns it, and whether it is the last."""
    while True:
        requested = chunk_size.entries
        buffer, begin, end = connection.xrange(stream_range.key, after, stream_range.end, requested)
        chunk_size.adapt(requested, end - begin)
        # If large entries follow small ones, parsing the reply would need too much memory: request fewer.
        if end - begin <= 4 * chunk_size.limits.max_bytes or requested == MIN_CHUNK_ENTRIES:
            chunk = read_xrange_reply(definition, buffer, begin, end)
            return chunk, chunk.entries < requested


def _read_chunk_with_rank(
    connection: RawConnection,
    definition: MetricDefinition,
    stream_range: StreamRange,
    after: str,
    chunk_size: _ChunkSize,
    rank: int | None,
) -> tuple[EntryChunk, bool, int | None]:
    """Read one chunk; returns it, whether it is the last, and its rank if trimming has reached it.

    Trimming removes the oldest entries first. So the stream's count of removed entries is the rank of the
    chunk, if the count was the same before and after the chunk was read. Otherwise the chunk is read again.
    """
    while True:
        before = _removed_and_oldest(connection.client, stream_range.key)
        chunk, complete = _read_chunk(connection, definition, stream_range, after, chunk_size)
        trimmed, oldest_id = _removed_and_oldest(connection.client, stream_range.key)
        if rank is not None and trimmed <= rank:
            return chunk, complete, None
        if oldest_id is not None and parse_entry_id(oldest_id) <= parse_entry_id(after):
            return chunk, complete, None
        if chunk.first_id is None:
            # The whole range was trimmed, and the trimmed entries may reach beyond its end. The next range
            # starts from the same rank and counts all of them.
            return chunk, complete, None
        if (trimmed, oldest_id) == before:
            return chunk, complete, trimmed


def _removed_and_oldest(client: Redis, key: str) -> tuple[int, str | None]:
    """Return how many entries were removed from the old end of the stream, and the id of the oldest entry."""
    try:
        info = client.xinfo_stream(key)
    except ResponseError as error:
        if "no such key" in str(error):
            return 0, None
        raise
    first = info["first-entry"]
    return int(info["entries-added"]) - int(info["length"]), first[0].decode() if first else None
