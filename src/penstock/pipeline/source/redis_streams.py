"""Redis Streams as a Spark streaming source, one per metric.

An offset is the last stream id read, per shard (see `planning`). Spark writes the end of a batch to its
checkpoint before the batch runs. So a batch that runs again after a restart covers the same ids, in the same
parts, and yields the same rows.

A new query starts after the entries that the streams' consumer group records as counted, or at the beginning
if there is no group. The group moves only after a batch is in ClickHouse. So a first batch that is repeated
is either complete there (and its token turns the repetition into a no-op) or starts at the same id.

A query that runs on starts its triggers without a pause, and the source waits for entries (see `arrivals`).

While Redis is unreachable, the source offers no new entries, and a batch in flight waits.

On a cluster the tasks also insert the rows of their ranges into ClickHouse, and send the sink only counts and
notes. The offset says so (see `planning`): a batch is repeated the way it was begun, wherever the query runs.
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
from redis.typing import KeyT, StreamIdT

from penstock.definitions import MetricDefinition
from penstock.errors import WarehouseUnavailable
from penstock.pipeline.archive.archive_writer import archive_range
from penstock.pipeline.batch_inserts import InsertedRows
from penstock.pipeline.source.arrivals import Arrivals
from penstock.pipeline.source.batch_rows import batch_schema, build_batches, build_point_batch
from penstock.pipeline.source.planning import (
    MAX_BYTES,
    MAX_ENTRIES,
    MIN_PART_BYTES,
    TASK_INSERT_BYTES,
    Offset,
    Planner,
    last_id,
)
from penstock.pipeline.source.raw_connection import RawConnection
from penstock.pipeline.source.stream_range import RangeContent, StreamRange, read_range
from penstock.redis_clients import connect_redis
from penstock.streams.positions import START_ID, TRANSIENT_REDIS_ERRORS, read_position, read_stream_state

log = logging.getLogger(__name__)

FORMAT = "penstock_streams"

FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.1, 5.0
UNREACHABLE_PAUSE_S = 1.0
"""The pause between two attempts to plan a batch while Redis is unreachable."""

T = TypeVar("T")


class StreamsSource(DataSource):
    """The data source of one metric.

    Options: `redis_url`, `definition` (see `encode_definition`), `max_entries` per shard and batch, `tasks`
    that can run at once, `archive`, the directory or URL of the archive, `clickhouse_url`,
    `task_insert_bytes`, the size from which tasks insert the rows of new batches, and `min_distance_ms`, the
    least time between the starts of two batches. Without the last one, the source does not wait for entries.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return batch_schema(decode_definition(self.options["definition"]))

    def reader(self, schema: StructType) -> WarmUpReader:
        return WarmUpReader()

    def streamReader(self, schema: StructType) -> StreamsReader:
        return StreamsReader(
            self.options["redis_url"],
            decode_definition(self.options["definition"]),
            int(self.options.get("max_entries", MAX_ENTRIES)),
            int(self.options.get("tasks", 1)),
            self.options.get("archive", ""),
            self.options.get("clickhouse_url", ""),
            task_insert_bytes=int(self.options.get("task_insert_bytes", TASK_INSERT_BYTES)),
            min_distance_ms=int(self.options.get("min_distance_ms", 0)),
        )


def encode_definition(definition: MetricDefinition) -> str:
    """Return the definition as text: an option that carries it to the processes that read."""
    return base64.b64encode(pickle.dumps(definition)).decode()


def decode_definition(text: str) -> MetricDefinition:
    """Return the definition that `encode_definition` encoded."""
    definition = pickle.loads(base64.b64decode(text))
    assert isinstance(definition, MetricDefinition)
    return definition


@dataclass(frozen=True, slots=True)
class TaskRanges(InputPartition):
    """The ranges that one task reads, in shard order."""

    ranges: tuple[StreamRange, ...]


class WarmUpReader(DataSourceReader):
    """Reads nothing, in one task. This starts the Python processes that the tasks of the stream use."""

    def partitions(self) -> Sequence[InputPartition]:
        return [TaskRanges(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        _freeze_garbage_collector()
        return iter(())


class StreamsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the batches of one metric. After a restart, the same offsets yield the same rows."""

    def __init__(
        self,
        redis_url: str,
        definition: MetricDefinition,
        max_entries: int = MAX_ENTRIES,
        tasks: int = 1,
        archive: str = "",
        clickhouse_url: str = "",
        *,
        max_bytes: int = MAX_BYTES,
        min_part_bytes: int = MIN_PART_BYTES,
        task_insert_bytes: int = TASK_INSERT_BYTES,
        min_distance_ms: int = 0,
    ) -> None:
        self._url = redis_url
        self._archive = archive
        self._clickhouse_url = clickhouse_url
        self._definition = definition
        self._max_entries = max_entries
        self._planner = Planner(
            definition,
            tasks,
            max_bytes=max_bytes,
            min_part_bytes=min_part_bytes,
            task_insert_bytes=task_insert_bytes,
        )
        self._targets: dict[int, str] | None = None
        self._arrivals = Arrivals(min_distance_ms / 1000) if min_distance_ms else None
        self._redis_unreachable = False

    def initialOffset(self) -> Offset:
        """Return the positions of the consumer group; used by a query without a checkpoint."""

        def read_positions() -> Offset:
            positions = [read_position(self._redis(), key) for key in self._definition.stream_keys]
            return {
                str(shard): position.id if position else START_ID for shard, position in enumerate(positions)
            }

        return _retry_while_unreachable(read_positions)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._max_entries)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next batch: the newest entry, or an earlier one if the backlog is large.

        It waits a while for an entry after `start`. Without one, it returns `start`.
        """
        max_entries = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        arrivals = self._arrivals if self._targets is None else None
        try:
            if arrivals is not None:
                arrivals.wait(self._redis(), self._last_ids(start))
            end = self._planner.next_offset(self._redis(), start, max_entries, self._targets)
        except (RedisError, OSError) as error:
            if not self._redis_unreachable:
                log.warning(
                    "Cannot read new %s events: Redis is unreachable: %s", self._definition.name, error
                )
            self._redis_unreachable = True
            if arrivals is not None:
                time.sleep(UNREACHABLE_PAUSE_S)
            return start
        self._redis_unreachable = False
        if arrivals is not None and end != start:
            arrivals.note_batch(leaves_entries=self._planner.leaves_entries)
        return end

    def _last_ids(self, offset: Offset) -> dict[KeyT, StreamIdT]:
        return {
            key: last_id(offset.get(str(shard), START_ID))
            for shard, key in enumerate(self._definition.stream_keys)
        }

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the last ids that this query reads: the newest ones at this moment."""

        def read_last_ids() -> dict[int, str]:
            states = [read_stream_state(self._redis(), key) for key in self._definition.stream_keys]
            return {shard: state.last_id if state else START_ID for shard, state in enumerate(states)}

        self._targets = _retry_while_unreachable(read_last_ids)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks of the batch. They yield the same rows however the ranges are spread over them."""
        ranges = _retry_while_unreachable(lambda: self._planner.ranges(self._redis(), start, end))
        if ranges and self._planner.is_small(ranges):
            return [TaskRanges(tuple(ranges))]
        return [TaskRanges((stream_range,)) for stream_range in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of one task. While Redis is unreachable, wait, then read the whole range again."""
        assert isinstance(partition, TaskRanges)
        _freeze_garbage_collector()
        schema = to_arrow_schema(batch_schema(self._definition), timezone="UTC")
        for stream_range in partition.ranges:
            content = _retry_while_unreachable(partial(self._read_range_once, stream_range))
            if stream_range.inserted_by_task and content.rows is not None:
                points = build_point_batch(self._definition, schema, stream_range.shard, content.rows)
                content.inserted = self._insert(stream_range, points)
            yield from build_batches(self._definition, schema, stream_range, content)

    def commit(self, end: Offset) -> None:
        """Trim the counted entries. ClickHouse and the checkpoint have them, so no batch reads them again."""
        try:
            for shard, key in enumerate(self._definition.stream_keys):
                counted_id = last_id(end.get(str(shard), START_ID))
                if counted_id != START_ID:
                    # Without an explicit limit, Redis trims only 10,000 entries per call.
                    self._redis().xtrim(key, minid=counted_id, approximate=True, limit=0)
        except (RedisError, OSError) as error:
            log.warning("Counted entries stay in their stream until the next batch: %s", error)

    def _read_range_once(self, stream_range: StreamRange) -> RangeContent:
        connection = RawConnection(self._url)
        try:
            with archive_range(self._archive, self._definition, stream_range) as archive:
                write_events = archive.write if archive else None
                content = read_range(connection, self._definition, stream_range, write_events)
                if archive and content.rejected:
                    archive.write_rejected(content.rejected)
                return content
        finally:
            connection.close()

    def _insert(self, stream_range: StreamRange, points: pa.RecordBatch) -> InsertedRows:
        # Imported here: the driver of ClickHouse takes memory in every process that reads.
        from penstock.pipeline.source.range_insert import insert_range

        return insert_range(
            self._clickhouse_url,
            self._definition,
            stream_range.name,
            points,
            retry=partial(_retry_while_unreachable, errors=(WarehouseUnavailable,), server="ClickHouse"),
        )

    def _redis(self) -> Redis:
        return _client(self._url)


@cache
def _client(redis_url: str) -> Redis:
    """Return the client of this process. The reader holds none, because Spark pickles it for the tasks."""
    return connect_redis(redis_url, socket_timeout=10, socket_connect_timeout=3, retry=Retry(NoBackoff(), 0))


@cache
def _freeze_garbage_collector() -> None:
    """Exclude the loaded modules from garbage collection, once per task process: they are never freed."""
    # Arrow imports pandas when it first converts Python objects. Do it now, not during the first batch.
    pa.array([""])
    gc.collect()
    gc.freeze()


def _retry_while_unreachable(
    call: Callable[[], T],
    errors: tuple[type[Exception], ...] = TRANSIENT_REDIS_ERRORS,
    server: str = "Redis",
) -> T:
    """Call until the server answers. Raises the error if the parent process, Spark, has ended."""
    backoff_s = FIRST_BACKOFF_S
    parent = os.getppid()
    while True:
        try:
            return call()
        except errors as error:
            if backoff_s == FIRST_BACKOFF_S:
                log.warning("A batch waits for %s: %s", server, error)
            if os.getppid() != parent:  # Spark was killed: this process is an orphan
                raise
            time.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)
