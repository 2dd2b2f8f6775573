"""Write each batch into ClickHouse exactly once.

Every insert carries a token that names the query, the batch, the table and the chunk (see `batch_inserts`).
Spark gives a repeated batch the same id and the same rows. So ClickHouse sees the same tokens and drops the
chunks that it already has, in every tier. After the inserts, the sink moves the consumer group of the
streams. If the process ends anywhere in between, the batch is repeated after the restart and no event is
counted twice.

On a cluster, the tasks have inserted the points of their ranges before the batch reaches the sink, which then
inserts only the events that were set aside.

With an archive, the tasks that read the events have archived them before the batch reaches the sink. After a
restart, the sink removes an unfinished batch from the archive before the batch is read again.

While ClickHouse is unreachable, the batch waits here, and the streams hold the entries after it.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from redis import Redis

from penstock.definitions import MetricDefinition
from penstock.errors import WarehouseUnavailable
from penstock.pipeline.archive.event_archive import Archive, batch_name
from penstock.pipeline.batch_inserts import CHUNK_ROWS, InsertedRows, batch_token, divide_rows
from penstock.pipeline.checkpoint_store import MetricCheckpoint
from penstock.pipeline.object_files import ObjectStoreUnavailable
from penstock.pipeline.sink.closed_buckets import ClosedBuckets
from penstock.pipeline.source.batch_rows import (
    INSERTED_KIND,
    POINT_KIND,
    POSITION_KIND,
    REJECTED_KIND,
    SET_ASIDE_KIND,
    UNKNOWN_RANK,
    combine_range_parts,
)
from penstock.pipeline.task_batch import QUERY_ID_PROPERTY
from penstock.pipeline.transforms import landing_columns, landing_expressions, landing_rows
from penstock.streams.batch_lock import BatchMark, batch_mark_key, begin_batch
from penstock.streams.positions import TRANSIENT_REDIS_ERRORS, Position, write_positions
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.rejected_events import REPLAYED_REASON, count_kept
from penstock.warehouse.schema import REJECTED_TABLE, SET_ASIDE_TABLE, landing_table
from penstock.warehouse.series.completeness import LOSS_REASONS, read_newest_event_s

log = logging.getLogger(__name__)

FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.2, 5.0
MAX_REJECTED_EVENTS = 100_000
"""Rejected events of one metric that are kept for a replay. Further ones are only counted."""
MAX_RECENT_BATCHES = 20
"""Batches that wait for the heartbeat. It takes them every two seconds."""


class StoppingError(Exception):
    """The pipeline stops before the batch is finished. The batch is repeated after the restart."""


class SinkBatch(NamedTuple):
    """A batch that the sink has finished."""

    batch_id: int
    entries: int
    rows: int
    read_ms: float
    insert_ms: float
    ended_at: float
    """Seconds since the epoch."""


@dataclass(slots=True)
class SinkState:
    """The last results of the sink, for the heartbeat. Another thread reads the fields one by one."""

    query_id: str | None = None
    batch_id: int = -1
    entries: int = 0
    rows: int = 0
    batch_ms: float = 0.0
    freshness: float | None = None
    rejected: int = 0
    lost: int = 0
    waiting_for: str | None = None
    """What the sink waits for, as shown in the heartbeat; None while it works."""
    total_entries: int = 0
    recent_batches: deque[SinkBatch] = field(default_factory=lambda: deque(maxlen=MAX_RECENT_BATCHES))
    """Batches since the heartbeat last took them."""
    active_at: float = -math.inf
    """Monotonic time at which Spark's Python processes last worked for this metric."""
    idle: threading.Event = field(default_factory=threading.Event)
    """Set between batches."""

    def __post_init__(self) -> None:
        self.idle.set()


class ClickHouseSink:
    """The `foreachBatch` function of one metric's query."""

    def __init__(
        self,
        definition: MetricDefinition,
        warehouse: Warehouse,
        redis: Redis,
        stopping: threading.Event,
        archive: Archive | None = None,
        stored_checkpoint: MetricCheckpoint | None = None,
        *,
        chunk_rows: int = CHUNK_ROWS,
        max_rejected: int = MAX_REJECTED_EVENTS,
    ) -> None:
        self.state = SinkState()
        self._archive = archive
        self._stored_checkpoint = stored_checkpoint
        self._chunk_rows = chunk_rows
        self._max_rejected = self._room_for_rejected = max_rejected
        # Whether this process finished the batch that it began last.
        self._last_batch_finished = False
        self._definition = definition
        self._warehouse = warehouse
        self._redis = redis
        self._stopping = stopping
        self._closed_buckets = ClosedBuckets(definition, warehouse)
        self._columns = landing_columns(definition)
        self._expressions = landing_expressions(definition)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        if self._stopping.is_set():
            raise StoppingError
        self.state.idle.clear()
        try:
            started = time.monotonic()
            query_id = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
            assert query_id, "The sink must run inside a streaming query."
            if self._stored_checkpoint is not None:
                publish = partial(self._stored_checkpoint.publish_batch, batch_id)
                self.retry_while_unreachable(publish, "the object store")
            if not self.open_batch(query_id, batch_id):
                return
            # Tasks may insert. Here a wait for ClickHouse can be seen and stopped, and in a task it cannot.
            self.retry_while_unreachable(partial(self._warehouse.command, "SELECT 1"), "ClickHouse")
            # One action only: a second one would read the streams again.
            read_started = time.monotonic()
            table = self.landing_rows(frame).toArrow()
            if self._stored_checkpoint is not None:
                confirm = partial(self._stored_checkpoint.confirm_batch, batch_id)
                self.retry_while_unreachable(confirm, "the object store")
            insert_started = time.monotonic()
            self.write(table, query_id, batch_id)
            ended, state = time.monotonic(), self.state
            state.batch_ms = (ended - started) * 1000
            read_ms, insert_ms = (insert_started - read_started) * 1000, (ended - insert_started) * 1000
            state.recent_batches.append(
                SinkBatch(batch_id, state.entries, state.rows, read_ms, insert_ms, time.time())
            )
            if state.entries:  # a batch without entries has no tasks
                state.active_at = ended
        finally:
            self.state.idle.set()

    def open_batch(self, query_id: str, batch_id: int) -> bool:
        """Wait while a rebuild or compaction holds the metric, then mark the batch as open.

        Returns False for a batch that is complete already, in the archive too. It must not be read again: the
        source may have trimmed its entries, and a compaction may have merged it with other batches.
        """
        attempts: list[tuple[bool, BatchMark | None]] = []

        def begin() -> None:
            attempts.append(begin_batch(self._redis, self._definition.name, query_id, batch_id))

        self.retry_while_unreachable(begin, "Redis")
        while not attempts[-1][0]:
            self.state.waiting_for = "waiting for a rebuild or compaction"
            if self._stopping.wait(FIRST_BACKOFF_S):
                raise StoppingError
            self.retry_while_unreachable(begin, "Redis")
        self.state.waiting_for = None
        previous = attempts[-1][1]
        if previous and previous.batch == (query_id, batch_id) and previous.is_written:
            log.info("%s: batch %d is complete already", self._definition.name, batch_id)
            return False
        if self._archive is None:
            return True
        if previous and not previous.is_written and previous.query_id != query_id:
            # Its checkpoint was reset, so its events are read again, as part of another batch.
            self._archive.remove_batch(batch_name(previous.query_id, previous.batch_id))
        if not self._last_batch_finished:
            self._archive.remove_batch(batch_name(query_id, batch_id))
        self._last_batch_finished = False
        return True

    def landing_rows(self, frame: DataFrame) -> DataFrame:
        """Return the rows of the source in the columns of the landing table."""
        return landing_rows(frame, self._expressions)

    def write(self, table: pa.Table, query_id: str, batch_id: int) -> None:
        """Insert the rows of one batch. A repetition with the same arguments changes nothing."""
        table = combine_range_parts(self._definition, table)
        points = _of_kind(table, POINT_KIND).select(self._columns)
        self._insert(landing_table(self._definition), points, query_id, batch_id)
        inserted = InsertedRows.of(points)
        for text in _of_kind(table, INSERTED_KIND)["example"].to_pylist():
            inserted = inserted.add(InsertedRows(**json.loads(text)))
        if inserted.oldest_ms is not None:
            self._closed_buckets.mark_changed(inserted.oldest_ms // 1000)
        self._closed_buckets.write_if_due(time.time())
        set_aside = _of_kind(table, SET_ASIDE_KIND)
        if set_aside.num_rows:
            self._insert(SET_ASIDE_TABLE, self._set_aside_rows(set_aside), query_id, batch_id)
            rejected = _of_kind(table, REJECTED_KIND).slice(0, self._room_for_rejected)
            self._insert(REJECTED_TABLE, self._rejected_rows(rejected), query_id, batch_id)
            self.load_totals()
        positions = _of_kind(table, POSITION_KIND)
        new_positions = self._read_positions(positions)
        marks = {
            batch_mark_key(self._redis, self._definition.name): BatchMark(query_id, batch_id, True).to_json()
        }
        self.retry_while_unreachable(partial(write_positions, self._redis, new_positions, marks), "Redis")
        self._last_batch_finished = True
        entries = sum(int(text) for text in positions["example"].to_pylist())
        state = self.state
        state.query_id, state.batch_id, state.entries, state.rows = (
            query_id,
            batch_id,
            entries,
            inserted.rows,
        )
        state.total_entries += entries
        if inserted.newest_ms is not None:
            state.freshness = max(inserted.newest_ms / 1000, state.freshness or 0.0)

    def load_totals(self) -> None:
        """Set `rejected`, `lost` and `freshness` from ClickHouse, so that they are right after a restart."""

        def query_totals() -> None:
            rows = self._warehouse.query(
                f"SELECT reason, sum(events) AS events FROM {SET_ASIDE_TABLE} "
                "WHERE metric = {metric:String} GROUP BY reason",
                {"metric": self._definition.name},
            )
            counts = {row["reason"]: int(row["events"]) for row in rows}
            kept = count_kept(self._warehouse, self._definition.name)
            self._room_for_rejected = max(0, self._max_rejected - kept)
            self.state.lost = sum(counts.pop(reason, 0) for reason in LOSS_REASONS)
            replayed = counts.pop(REPLAYED_REASON, 0)
            self.state.rejected = sum(counts.values()) - replayed
            self.state.freshness = read_newest_event_s(self._warehouse, self._definition)

        self.retry_while_unreachable(query_totals, "ClickHouse")

    def resume_percentiles(self) -> None:
        """Schedule percentiles that the previous process may not have written. Needs `load_totals`."""
        self._closed_buckets.resume(self.state.freshness)

    def finish(self) -> None:
        """Write the percentiles of closed buckets; called after the last batch."""
        if self.state.waiting_for is None:
            self._closed_buckets.write(time.time())

    def _insert(self, table: str, rows: pa.Table, query_id: str, batch_id: int) -> None:
        for chunk, token in divide_rows(rows, batch_token(query_id, batch_id, table), self._chunk_rows):
            self.retry_while_unreachable(
                partial(self._warehouse.insert_once, table, chunk, token), "ClickHouse"
            )

    def _set_aside_rows(self, notes: pa.Table) -> pa.Table:
        keys = self._definition.stream_keys
        began_at = notes["began_ms"].cast(pa.timestamp("ms", "UTC")).cast(notes["at"].type)
        return pa.table(
            {
                "metric": pa.repeat(self._definition.name, notes.num_rows),
                "reason": notes["label"],
                "stream": pa.array([keys[shard] for shard in notes["shard"].to_pylist()]),
                "at": notes["at"],
                "began_at": pc.coalesce(began_at, notes["at"]),
                "events": notes["events"],
                "example": notes["example"],
            }
        )

    def _rejected_rows(self, notes: pa.Table) -> pa.Table:
        keys, count = self._definition.stream_keys, notes.num_rows
        events = [json.loads(text) for text in notes["example"].to_pylist()]
        return pa.table(
            {
                "metric": pa.repeat(self._definition.name, count),
                "reason": notes["label"],
                "stream": pa.array([keys[shard] for shard in notes["shard"].to_pylist()], pa.string()),
                "at": notes["at"],
                **{
                    name: pa.array([event[column] for event in events], pa.string())
                    for column, name in enumerate(("entry", "text", "fields"))
                },
                "replayed": pa.array([0] * count, pa.uint8()),
            }
        )

    def _read_positions(self, rows: pa.Table) -> dict[str, Position]:
        positions = {}
        for row in rows.select(["shard", "label", "events"]).to_pylist():
            entries = None if row["events"] == UNKNOWN_RANK else row["events"]
            positions[self._definition.stream_keys[row["shard"]]] = Position(row["label"], entries)
        return positions

    def retry_while_unreachable(self, attempt: Callable[[], None], server: str) -> None:
        """Attempt until the server answers. Raises StoppingError when the pipeline stops."""
        backoff_s = FIRST_BACKOFF_S
        while True:
            try:
                attempt()
            except (WarehouseUnavailable, ObjectStoreUnavailable, *TRANSIENT_REDIS_ERRORS) as error:
                if self.state.waiting_for is None:
                    log.warning("%s: a batch waits for %s: %s", self._definition.name, server, error)
                self.state.waiting_for = f"waiting for {server}"
            else:
                self.state.waiting_for = None
                return
            if self._stopping.wait(backoff_s):
                raise StoppingError
            backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)


def _of_kind(table: pa.Table, kind: str) -> pa.Table:
    return table.filter(pc.equal(table["kind"], kind))
