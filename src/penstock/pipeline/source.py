"""Redis Streams as a Spark streaming source, one per metric.

An offset is the last stream id read, per shard. Spark writes the end of a batch to its checkpoint before the
batch runs, so a batch that is run again after a crash covers the same ids and yields the same rows.

Where a new query starts: after what the streams' consumer group says was counted, else at the beginning. The
group moves only after a batch is in ClickHouse, so a first batch that is repeated is either complete there
(and its token makes the repetition void) or starts at the same place.

While Redis is away the source offers nothing new, and a batch under way waits for it.
"""

from __future__ import annotations

import base64
import gc
import logging
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from penstock.definitions import MetricDefinition
from penstock.pipeline.batch_rows import batch_rows, batch_schema
from penstock.pipeline.stream_range import RangeContent, RawConnection, StreamRange, read_range
from penstock.streams.positions import BEGINNING, id_parts, read_position, stream_state

log = logging.getLogger(__name__)

FORMAT = "penstock_streams"

MOST_ENTRIES = 200_000
"""Entries per shard and batch while catching up."""

SMALL_BATCH = 5_000
"""Up to here one task reads all shards: a second one would cost more than it saves."""

LAST_SEQUENCE = (1 << 64) - 1
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0

Offset = dict[str, str]
T = TypeVar("T")


class StreamsSource(DataSource):
    """Options: `redis_url`, `definition` (see `packed`), `most_entries`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return batch_schema(unpacked(self.options["definition"]))

    def reader(self, schema: StructType) -> WarmUpReader:
        return WarmUpReader()

    def streamReader(self, schema: StructType) -> StreamsReader:
        return StreamsReader(
            self.options["redis_url"],
            unpacked(self.options["definition"]),
            int(self.options.get("most_entries", MOST_ENTRIES)),
        )


def packed(definition: MetricDefinition) -> str:
    """A definition as text, to reach the processes that read; nothing there needs to know it beforehand."""
    return base64.b64encode(pickle.dumps(definition)).decode()


def unpacked(text: str) -> MetricDefinition:
    definition = pickle.loads(base64.b64decode(text))
    assert isinstance(definition, MetricDefinition)
    return definition


@dataclass(frozen=True, slots=True)
class Ranges(InputPartition):
    """What one task reads: whole ranges, in shard order."""

    ranges: tuple[StreamRange, ...]


class WarmUpReader(DataSourceReader):
    """Reads nothing, in one task: a batch read brings up the processes that the stream's tasks will use."""

    def partitions(self) -> Sequence[InputPartition]:
        return [Ranges(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        _freeze_collector()
        return iter(())


class StreamsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(
        self, redis_url: str, definition: MetricDefinition, most_entries: int = MOST_ENTRIES
    ) -> None:
        self._url = redis_url
        self._definition = definition
        self._most_entries = most_entries
        self._goal: dict[int, str] | None = None
        self._away = False
        # Entries ever added up to an id, per shard: what the last look at the stream told.
        self._entries: dict[int, dict[str, int]] = {shard: {} for shard in range(definition.shards)}

    def initialOffset(self) -> Offset:
        def look() -> Offset:
            found = [read_position(self._redis(), key) for key in self._definition.stream_keys]
            return {str(shard): place.id if place else BEGINNING for shard, place in enumerate(found)}

        return _persistently(look)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._most_entries)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Where the next batch ends: at the newest entry, or earlier when there is too much for one batch."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        try:
            end = {
                str(shard): self._end(shard, key, start.get(str(shard), BEGINNING), most)
                for shard, key in enumerate(self._definition.stream_keys)
            }
        except (RedisError, OSError) as error:
            if not self._away:
                log.warning("no new %s events: Redis does not answer: %s", self._definition.name, error)
            self._away = True
            return start
        self._away = False
        return end

    def prepareForTriggerAvailableNow(self) -> None:
        def look() -> dict[int, str]:
            states = [stream_state(self._redis(), key) for key in self._definition.stream_keys]
            return {shard: state.last_id if state else BEGINNING for shard, state in enumerate(states)}

        self._goal = _persistently(look)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The tasks of the batch. What they yield is the same however the ranges are spread over them."""

        def plan() -> list[StreamRange]:
            return [
                self._range(shard, key, start.get(str(shard), BEGINNING), end[str(shard)])
                for shard, key in enumerate(self._definition.stream_keys)
                if end[str(shard)] != start.get(str(shard), BEGINNING)
            ]

        ranges = _persistently(plan)
        sizes = [_size(wanted) for wanted in ranges]
        if ranges and all(size is not None for size in sizes) and sum(filter(None, sizes)) <= SMALL_BATCH:
            return [Ranges(tuple(ranges))]
        return [Ranges((wanted,)) for wanted in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Ranges)
        _freeze_collector()
        schema = to_arrow_schema(batch_schema(self._definition), timezone="UTC")
        for wanted in partition.ranges:
            content = _persistently(partial(self._read_once, wanted))
            yield from batch_rows(self._definition, schema, wanted, content)

    def commit(self, end: Offset) -> None:
        """Free what has been counted. It is in ClickHouse and in the checkpoint, so nobody asks again."""
        try:
            for shard, key in enumerate(self._definition.stream_keys):
                if end[str(shard)] != BEGINNING:
                    self._redis().xtrim(key, minid=end[str(shard)], approximate=True)
        except (RedisError, OSError) as error:
            log.warning("counted entries stay in their stream until the next batch: %s", error)

    def _end(self, shard: int, key: str, start: str, most: int | None) -> str:
        state = stream_state(self._redis(), key)
        if state is None or id_parts(state.last_id) <= id_parts(start):
            return start
        goal = self._goal[shard] if self._goal is not None else state.last_id
        if id_parts(goal) <= id_parts(start):
            return start
        read = self._entries_at(shard, key, start)
        waiting = state.length if read is None else min(state.length, state.added - read)
        if most is not None and waiting > most:
            capped = self._capped(key, start, goal, most / waiting)
            if capped is not None:
                return capped
        if goal == state.last_id:
            known = {} if read is None else {start: read}
            self._entries[shard] = {**known, goal: state.added}
        return goal

    def _capped(self, key: str, start: str, goal: str, share: float) -> str | None:
        """An id before `goal` with roughly `share` of the entries before it, at the edge of a bucket.

        Counting entries would cost Redis more than reading them; ids are times, and that is near enough. A
        batch that comes out too large takes longer, not more memory.
        """
        first: Any = self._redis().xrange(key, f"({start}", goal, count=1)
        if not first:
            return None
        first_ms, goal_ms = id_parts(bytes(first[0][0]).decode())[0], id_parts(goal)[0]
        bucket_ms = self._definition.bucket_ms
        edge = int(first_ms + (goal_ms - first_ms) * share) // bucket_ms * bucket_ms
        end_ms = max(edge, first_ms // bucket_ms * bucket_ms + bucket_ms) - 1
        return f"{end_ms}-{LAST_SEQUENCE}" if end_ms < goal_ms else None

    def _range(self, shard: int, key: str, start: str, end: str) -> StreamRange:
        before, after = (self._entries_at(shard, key, entry_id) for entry_id in (start, end))
        return StreamRange(shard, key, start, end, before, after)

    def _entries_at(self, shard: int, key: str, entry_id: str) -> int | None:
        """Entries ever added up to `entry_id`, if this process saw it or the group stands there."""
        if entry_id == BEGINNING:
            return 0
        if entry_id in self._entries[shard]:
            return self._entries[shard][entry_id]
        position = read_position(self._redis(), key)
        return position.entries if position and position.id == entry_id else None

    def _read_once(self, wanted: StreamRange) -> RangeContent:
        connection = RawConnection(self._url)
        try:
            return read_range(connection, self._definition, wanted)
        finally:
            connection.close()

    def _redis(self) -> Redis:
        return _client(self._url)


@cache
def _client(redis_url: str) -> Redis:
    """One client per process. Not kept in the reader, which travels to the tasks."""
    return Redis.from_url(redis_url, socket_timeout=10, socket_connect_timeout=3, retry=Retry(NoBackoff(), 0))


@cache
def _freeze_collector() -> None:
    """Once per task process: what is loaded by now stays, so the collector need not look at it every time."""
    gc.collect()
    gc.freeze()


def _persistently(ask: Callable[[], T]) -> T:
    """The answer, however long Redis is away."""
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return ask()
        except (RedisConnectionError, RedisTimeoutError, OSError) as error:
            if pause_s == FIRST_PAUSE_S:
                log.warning("a batch waits for Redis: %s", error)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _size(wanted: StreamRange) -> int | None:
    if wanted.start_entries is None or wanted.end_entries is None:
        return None
    return wanted.end_entries - wanted.start_entries
