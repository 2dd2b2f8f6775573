"""A batch into ClickHouse, once.

Every insert carries a token: the query's id (which belongs to the checkpoint), the batch, the table and the
chunk. Spark gives a repeated batch the same id and the same rows, so ClickHouse sees the same tokens and
drops what it already has, chunk by chunk, in every tier. After the inserts the streams' consumer group is
moved. If the process dies anywhere in between, the batch is repeated and nothing is counted twice.

With an archive, the tasks that read the events have written them there when the batch arrives here. A batch
that died on its way is taken out of the archive before it is read again.

While ClickHouse is away the batch waits here; the streams hold what comes after it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from redis import Redis

from penstock.definitions import MetricDefinition
from penstock.errors import WarehouseUnavailable
from penstock.pipeline.archive.event_archive import Archive, batch_name
from penstock.pipeline.sink.closed_buckets import PassedBuckets
from penstock.pipeline.source.batch_rows import ASIDE, POINT, POSITION, UNKNOWN_ENTRIES, settled
from penstock.pipeline.transforms import landing_columns, landing_expressions, landing_rows
from penstock.streams.batch_lock import Mark, begin_batch, mark_key
from penstock.streams.positions import AWAY, Position, write_positions
from penstock.streams.wire import Reason
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import SET_ASIDE, landing_table
from penstock.warehouse.series.points import newest_event

log = logging.getLogger(__name__)

CHUNK_ROWS = 100_000
"""Rows per insert; a fixed number, because the chunk's number is part of the token."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
QUERY_ID = "sql.streaming.queryId"


class StoppingError(Exception):
    """The pipeline was told to stop while a batch could not be finished. It will be repeated."""


@dataclass(slots=True)
class SinkState:
    """What the sink last did, for the progress report. Replaced field by field, read by another thread."""

    query_id: str | None = None
    batch_id: int = -1
    entries: int = 0
    rows: int = 0
    batch_ms: float = 0.0
    freshness: float | None = None
    rejected: int = 0
    lost: int = 0
    waiting: str | None = None
    total_entries: int = 0
    active_at: float = -math.inf
    """When Spark's Python processes last worked for this metric, by the monotonic clock."""
    idle: threading.Event = field(default_factory=threading.Event)
    """Set between batches."""

    def __post_init__(self) -> None:
        self.idle.set()


class Sink:
    """The `foreachBatch` function of one metric's query."""

    def __init__(
        self,
        definition: MetricDefinition,
        warehouse: Warehouse,
        redis: Redis,
        stopping: threading.Event,
        archive: Archive | None = None,
    ) -> None:
        self.state = SinkState()
        self._archive = archive
        # Whether what this process last did was to finish a batch.
        self._finished = False
        self._definition = definition
        self._warehouse = warehouse
        self._redis = redis
        self._stopping = stopping
        self._passed = PassedBuckets(definition, warehouse)
        self._columns = landing_columns(definition)
        self._expressions = landing_expressions(definition)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        if self._stopping.is_set():
            raise StoppingError
        self.state.idle.clear()
        try:
            started = time.monotonic()
            query_id = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
            assert query_id, "the sink must run inside a streaming query"
            if not self.begin(query_id, batch_id):
                return
            # One action: a second one would read the streams again.
            table = self.landing_rows(frame).toArrow()
            self.write(table, query_id, batch_id)
            self.state.batch_ms = (time.monotonic() - started) * 1000
            if self.state.entries:  # a batch without entries has no tasks
                self.state.active_at = time.monotonic()
        finally:
            self.state.idle.set()

    def begin(self, query_id: str, batch_id: int) -> bool:
        """Wait until nobody holds the metric back, then mark the batch as under way.

        Returns False for a batch that is complete already, in the archive too: it must not be written there
        again, because since then it may have been put together with others.
        """
        found: list[tuple[bool, Mark | None]] = []

        def ask() -> None:
            found.append(begin_batch(self._redis, self._definition.name, query_id, batch_id))

        self.patiently(ask, "Redis")
        while not found[-1][0]:
            self.state.waiting = "waiting for a rebuild or compaction"
            if self._stopping.wait(FIRST_PAUSE_S):
                raise StoppingError
            self.patiently(ask, "Redis")
        self.state.waiting = None
        before = found[-1][1]
        if self._archive is None:
            return True
        if before and before.batch == (query_id, batch_id) and before.written:
            log.info("%s: batch %d was complete already", self._definition.name, batch_id)
            return False
        if before and not before.written and before.query_id != query_id:
            # Its checkpoint is gone, so its events are read again, as part of another batch.
            self._archive.remove_batch(batch_name(before.query_id, before.batch_id))
        if not self._finished:
            self._archive.remove_batch(batch_name(query_id, batch_id))
        self._finished = False
        return True

    def landing_rows(self, frame: DataFrame) -> DataFrame:
        return landing_rows(frame, self._expressions)

    def write(self, table: pa.Table, query_id: str, batch_id: int) -> None:
        """Insert one batch's rows. Repeating it with the same arguments changes nothing."""
        table = settled(table)
        points = _of_kind(table, POINT).select(self._columns)
        self._insert(landing_table(self._definition), points, query_id, batch_id)
        oldest = pc.min(points["newest_ms"]).as_py()
        if oldest is not None:
            self._passed.touched(oldest // 1000)
        self._passed.write_if_due(time.time())
        aside = _of_kind(table, ASIDE)
        if aside.num_rows:
            self._insert(SET_ASIDE, self._aside_rows(aside), query_id, batch_id)
            self.load_totals()
        positions = _of_kind(table, POSITION)
        moved = self._positions(positions)
        written = {mark_key(self._definition.name): Mark(query_id, batch_id, True).text}
        self.patiently(partial(write_positions, self._redis, moved, written), "Redis")
        self._finished = True
        entries = sum(int(text) for text in positions["example"].to_pylist())
        state = self.state
        state.query_id, state.batch_id, state.entries, state.rows = (
            query_id,
            batch_id,
            entries,
            points.num_rows,
        )
        state.total_entries += entries
        newest = pc.max(points["newest_ms"]).as_py()
        if newest is not None:
            state.freshness = max(newest / 1000, state.freshness or 0.0)

    def load_totals(self) -> None:
        """Set `rejected`, `lost` and `freshness` from ClickHouse, where they are right after any restart."""

        def ask() -> None:
            found = self._warehouse.query(
                f"SELECT reason, sum(events) AS events FROM {SET_ASIDE} "
                "WHERE metric = {metric:String} GROUP BY reason",
                {"metric": self._definition.name},
            )
            counts = {row["reason"]: int(row["events"]) for row in found}
            self.state.lost = counts.pop(Reason.TRIMMED.value, 0)
            self.state.rejected = sum(counts.values())
            self.state.freshness = newest_event(self._warehouse, self._definition)

        self.patiently(ask, "ClickHouse")

    def look_back(self) -> None:
        """See to what the process before this one may have left undone. Needs the totals."""
        self._passed.begin(self.state.freshness)

    def finish(self) -> None:
        """Leave nothing undone that can be done now; called after the last batch."""
        if self.state.waiting is None:
            self._passed.write(time.time())

    def _insert(self, table: str, rows: pa.Table, query_id: str, batch_id: int) -> None:
        for chunk, start in enumerate(range(0, rows.num_rows, CHUNK_ROWS)):
            part = rows.slice(start, CHUNK_ROWS).combine_chunks()
            token = f"{query_id}:{batch_id}:{table}:{chunk}"
            self.patiently(partial(self._warehouse.insert_once, table, part, token), "ClickHouse")

    def _aside_rows(self, aside: pa.Table) -> pa.Table:
        keys = self._definition.stream_keys
        return pa.table(
            {
                "metric": pa.repeat(self._definition.name, aside.num_rows),
                "reason": aside["label"],
                "stream": pa.array([keys[shard] for shard in aside["shard"].to_pylist()]),
                "at": aside["at"],
                "events": aside["events"],
                "example": aside["example"],
            }
        )

    def _positions(self, rows: pa.Table) -> dict[str, Position]:
        found = {}
        for row in rows.select(["shard", "label", "events"]).to_pylist():
            entries = None if row["events"] == UNKNOWN_ENTRIES else row["events"]
            found[self._definition.stream_keys[row["shard"]]] = Position(row["label"], entries)
        return found

    def patiently(self, attempt: Callable[[], None], whom: str) -> None:
        """Attempt until it succeeds, or until the pipeline is told to stop."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                attempt()
            except (WarehouseUnavailable, *AWAY) as error:
                if self.state.waiting is None:
                    log.warning("%s: a batch waits for %s: %s", self._definition.name, whom, error)
                self.state.waiting = f"waiting for {whom}"
            else:
                self.state.waiting = None
                return
            if self._stopping.wait(pause_s):
                raise StoppingError
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _of_kind(table: pa.Table, kind: str) -> pa.Table:
    return table.filter(pc.equal(table["kind"], kind))
