"""Reading a range of ids from one stream, folded as it is read.

The range (start, end] is fixed before reading begins, so reading it again gives the same rows, as long as
the stream still holds the entries. Memory is bounded by the number of distinct dimensions and buckets, not
by the number of entries: each chunk is folded before the next one is fetched.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from penstock.definitions import MetricDefinition
from penstock.pipeline.source.digits import PADDING
from penstock.pipeline.source.entry_chunk import Chunk
from penstock.pipeline.source.fold import fold
from penstock.pipeline.source.range_parts import Found
from penstock.pipeline.source.resp_columns import read_reply
from penstock.pipeline.source.rows import Rows, concatenated
from penstock.streams.positions import id_parts
from penstock.streams.wire import Reason

CHUNK_ENTRIES, FIRST_CHUNK_ENTRIES, FEWEST_ENTRIES = 10_000, 500, 10
CHUNK_BYTES = 4 << 20
"""A reply is about as large as both allow: packed entries are many times the size of single ones."""

FOLD_AGAIN_ROWS = 50_000
_SPARE = 1 << 16


@dataclass(frozen=True, slots=True)
class StreamRange:
    """Entries after `start` up to and including `end` of one stream.

    It may be one of several `pieces` of a larger range, of which each task reads one. `start_entries` and
    `end_entries` belong to the whole: how many entries had ever been added up to there, if known. The
    difference between that and what is found has been trimmed.
    """

    shard: int
    key: str
    start: str
    end: str
    start_entries: int | None = None
    end_entries: int | None = None
    piece: int = 0
    pieces: int = 1


@dataclass(slots=True)
class RangeContent:
    """What a range held."""

    found: Found
    rows: Rows | None = None
    set_aside: Counter[Reason] = field(default_factory=Counter)
    examples: dict[Reason, str] = field(default_factory=dict)


class RawConnection:
    """A connection that hands out replies as bytes. Everything but the reading is the Redis client's."""

    def __init__(self, redis_url: str) -> None:
        self.client = Redis.from_url(
            redis_url, protocol=2, socket_timeout=30, socket_connect_timeout=3, retry=Retry(NoBackoff(), 0)
        )
        pool: Any = self.client.connection_pool
        self._connection = pool.get_connection()
        self._connection.connect()
        self._socket: socket.socket = self._connection._sock
        self._mark = token_hex(16).encode()
        self._buffer = bytearray(PADDING + 2 * _SPARE)

    def xrange(self, key: str, after: str, upto: str, count: int) -> tuple[bytearray, int, int]:
        """The reply to XRANGE, as `buffer[begin:end]`. An ECHO behind it shows where the reply ends.

        The buffer is used again by the next call.
        """
        self._connection.send_packed_command(
            self._connection.pack_commands(
                [("XRANGE", key, f"({after}", upto, "COUNT", count), ("ECHO", self._mark)]
            ),
            check_health=False,
        )
        ending = b"$%d\r\n%s\r\n" % (len(self._mark), self._mark)
        buffer, filled = self._buffer, PADDING
        while not (filled >= PADDING + len(ending) and buffer.endswith(ending, PADDING, filled)):
            if len(buffer) - filled < _SPARE:
                self._buffer = buffer = buffer + bytes(len(buffer))
            received = self._socket.recv_into(memoryview(buffer)[filled:])
            if not received:
                raise RedisConnectionError("Redis closed the connection while a range was being read")
            filled += received
        end = filled - len(ending)
        if buffer[PADDING : PADDING + 1] == b"-":
            words = bytes(buffer[PADDING + 1 : end]).decode("utf-8", "replace").strip()
            # A server that is loading its data is away for a while; anything else is here to stay.
            raise (BusyLoadingError if words.startswith("LOADING") else ResponseError)(words)
        return buffer, PADDING, end

    def close(self) -> None:
        self._connection.disconnect()
        self.client.close()


def read_range(
    connection: RawConnection,
    definition: MetricDefinition,
    wanted: StreamRange,
    keep: Callable[[Rows], None] | None = None,
) -> RangeContent:
    """Everything in the range, folded, with what tells how much is missing from it.

    `keep` is given the single events, chunk by chunk, before they are folded.
    """
    found = Found(wanted.start_entries, wanted.end_entries)
    if wanted.piece == 0:
        found.reached = wanted.start_entries
    content = RangeContent(found)
    pending: list[Rows] = []
    fold_again_rows = FOLD_AGAIN_ROWS
    after, complete, pace = wanted.start, False, _Pace()
    while not complete:
        if wanted.end_entries is not None:
            chunk, complete = _read_chunk(connection, definition, wanted, after, pace)
        else:
            chunk, complete, rank = _read_with_rank(
                connection, definition, wanted, after, pace, found.reached
            )
            if rank is not None:
                found.learn(rank)
        found.read(chunk.entries)
        content.set_aside += chunk.set_aside
        content.examples = {**chunk.examples, **content.examples}
        if len(chunk.rows):
            if keep is not None:
                keep(chunk.rows)
            pending.append(fold(chunk.rows, definition.bucket_ms))
        if sum(map(len, pending)) > fold_again_rows:
            pending = [fold(concatenated(pending), definition.bucket_ms)]
            # Where folding has nothing left to gain, it must not be tried with every chunk.
            fold_again_rows = max(FOLD_AGAIN_ROWS, 2 * len(pending[0]))
        after = chunk.last_id.decode() if chunk.last_id else after
    if pending:
        content.rows = fold(concatenated(pending), definition.bucket_ms) if len(pending) > 1 else pending[0]
    return content


@dataclass(slots=True)
class _Pace:
    """How many entries to ask for."""

    entries: int = field(default_factory=lambda: min(CHUNK_ENTRIES, FIRST_CHUNK_ENTRIES))

    def learn(self, entries: int, size: int) -> None:
        self.entries = max(FEWEST_ENTRIES, min(CHUNK_ENTRIES, CHUNK_BYTES * entries // size))


def _read_chunk(
    connection: RawConnection, definition: MetricDefinition, wanted: StreamRange, after: str, pace: _Pace
) -> tuple[Chunk, bool]:
    """One chunk, and whether it is the last."""
    while True:
        asked = pace.entries
        buffer, begin, end = connection.xrange(wanted.key, after, wanted.end, asked)
        pace.learn(asked, end - begin)
        # Where small entries are followed by large ones, taking the reply apart would need too much memory.
        if end - begin <= 4 * CHUNK_BYTES or asked == FEWEST_ENTRIES:
            chunk = read_reply(definition, buffer, begin, end)
            return chunk, chunk.entries < asked


def _read_with_rank(
    connection: RawConnection,
    definition: MetricDefinition,
    wanted: StreamRange,
    after: str,
    pace: _Pace,
    position: int | None,
) -> tuple[Chunk, bool, int | None]:
    """One chunk, whether it is the last, and how many entries were before it, if trimming has got there.

    Trimming takes the oldest first, so the stream's count of removed entries tells, if it was the same before
    and after the chunk was read. Otherwise the chunk is read again.
    """
    while True:
        before = _oldest(connection.client, wanted.key)
        chunk, complete = _read_chunk(connection, definition, wanted, after, pace)
        trimmed, oldest_id = _oldest(connection.client, wanted.key)
        if position is not None and trimmed <= position:
            return chunk, complete, None
        if oldest_id is not None and id_parts(oldest_id) <= id_parts(after):
            return chunk, complete, None
        if chunk.first_id is None:
            # Nothing is left of the range, and what was trimmed may reach beyond its end. The next range
            # starts from the same position and counts all of it.
            return chunk, complete, None
        if (trimmed, oldest_id) == before:
            return chunk, complete, trimmed


def _oldest(client: Redis, key: str) -> tuple[int, str | None]:
    """How many entries were removed from the stream's old end, and the oldest one's id."""
    try:
        info: dict[str, Any] = client.xinfo_stream(key)
    except ResponseError as error:
        if "no such key" in str(error):
            return 0, None
        raise
    first = info["first-entry"]
    return int(info["entries-added"]) - int(info["length"]), first[0].decode() if first else None
