"""Redis Streams as a Spark streaming source, one per metric.

An offset is the last stream id read, per shard (see `planning`). Spark writes the end of a batch to its
checkpoint before the batch runs, so a batch that is run again after a crash covers the same ids, in the same
pieces, and yields the same rows.

Where a new query starts: after what the streams' consumer group says was counted, else at the beginning. The
group moves only after a batch is in ClickHouse, so a first batch that is repeated is either complete there
(and its token makes the repetition void) or starts at the same place.

While Redis is away the source offers nothing new, and a batch under way waits for it.
"""

from __future__ import annotations

import base64
import gc
import logging
import os
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from penstock.definitions import MetricDefinition
from penstock.pipeline.archive.archive_writer import archiving
from penstock.pipeline.source.batch_rows import batch_rows, batch_schema
from penstock.pipeline.source.planning import MOST_ENTRIES, Offset, Planner, last_id
from penstock.pipeline.source.stream_range import RangeContent, RawConnection, StreamRange, read_range
from penstock.streams.positions import AWAY, BEGINNING, read_position, stream_state

log = logging.getLogger(__name__)

FORMAT = "penstock_streams"

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0

T = TypeVar("T")


class StreamsSource(DataSource):
    """Options: `redis_url`, `definition` (see `packed`), `most_entries` per shard and batch, `tasks` that
    can run at once, and `archive`, where to keep every event."""

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
            int(self.options.get("tasks", 1)),
            self.options.get("archive", ""),
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
        self,
        redis_url: str,
        definition: MetricDefinition,
        most_entries: int = MOST_ENTRIES,
        tasks: int = 1,
        archive: str = "",
    ) -> None:
        self._url = redis_url
        self._archive = archive
        self._definition = definition
        self._most_entries = most_entries
        self._planner = Planner(definition, tasks)
        self._goal: dict[int, str] | None = None
        self._away = False

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
            end = self._planner.next_offset(self._redis(), start, most, self._goal)
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
        ranges = _persistently(lambda: self._planner.ranges(self._redis(), start, end))
        if ranges and self._planner.is_small(ranges):
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
                reached = last_id(end.get(str(shard), BEGINNING))
                if reached != BEGINNING:
                    # Without a limit of its own, Redis would free 10,000 entries and keep the rest.
                    self._redis().xtrim(key, minid=reached, approximate=True, limit=0)
        except (RedisError, OSError) as error:
            log.warning("counted entries stay in their stream until the next batch: %s", error)

    def _read_once(self, wanted: StreamRange) -> RangeContent:
        connection = RawConnection(self._url)
        try:
            with archiving(self._archive, self._definition, wanted) as keep:
                return read_range(connection, self._definition, wanted, keep)
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
    # Arrow loads pandas when it first sees Python objects: not in the middle of the first batch.
    pa.array([""])
    gc.collect()
    gc.freeze()


def _persistently(ask: Callable[[], T]) -> T:
    """The answer, however long Redis is away, as long as Spark is there to hear it."""
    pause_s = FIRST_PAUSE_S
    parent = os.getppid()
    while True:
        try:
            return ask()
        except AWAY as error:
            if pause_s == FIRST_PAUSE_S:
                log.warning("a batch waits for Redis: %s", error)
            if os.getppid() != parent:  # Spark was killed, and this process is left over
                raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
