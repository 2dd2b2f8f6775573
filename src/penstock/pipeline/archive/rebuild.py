"""Rebuild tiers from the archive, by whole days.

For each day: fold the archived events into copies of the tables; lock the pipeline between two batches, so
that archive and tables contain the same events; add the events that arrived meanwhile to the copies; swap the
day in, table by table. So a day, even today, can be rebuilt while events of it still arrive, and none is lost
or counted twice.

If the process is killed at any time, the live tables are unchanged, or some of them are swapped, each
completely. The lock expires, and the next run drops the copies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from uuid import uuid4

from pyspark.sql import SparkSession
from redis import Redis

from penstock.definitions import MetricDefinition
from penstock.errors import PenstockError
from penstock.pipeline.archive.event_archive import Archive, ArchivedFile, batch_name
from penstock.pipeline.archive.rebuild_fold import fold_files
from penstock.streams.batch_lock import BatchLock
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.distributed_tables import is_sharded
from penstock.warehouse.table_copies import TableCopies, count_events_of_day, tables_retaining

GROUP_EVENTS = 1_000_000
"""Events folded at a time. This bounds the memory."""

MAX_HELD_EVENTS = 200_000
"""Events that may be folded while the pipeline is held."""

OPEN_BATCH_TIMEOUT_S = 45.0
"""How long to wait for an open batch to finish."""

POLL_INTERVAL_S = 0.1


class RebuildRefused(PenstockError):
    """A rebuild of the day would lose events or count them twice. Nothing was changed."""

    code = "rebuild_refused"
    title = "Rebuild refused"


@dataclass(slots=True)
class DayPlan:
    """The state of a day before its rebuild, and the result."""

    metric: str
    day: str
    archived: int
    """Events in the archive."""
    counted: int
    """Events in the live tables."""
    files: int
    tables: list[str]
    """Tables whose retention still includes the day."""
    rebuilt: bool = False
    held_s: float = 0.0
    """How long the pipeline was held."""


@dataclass(slots=True)
class _FoldedDay:
    """The batches of a day that are in the copies, and their number of events."""

    day: date
    batches: set[str] = field(default_factory=set)
    events: int = 0


ProgressCallback = Callable[[str, int], None]
"""Called with the current day and the number of events folded since the last call."""


class Rebuild:
    """Rebuilds the days of one metric. The caller holds the lock of the archive."""

    def __init__(
        self,
        archive: Archive,
        warehouse: Warehouse,
        redis: Redis,
        *,
        partial: bool = False,
        cluster: str = "",
        open_batch_timeout_s: float = OPEN_BATCH_TIMEOUT_S,
    ) -> None:
        self.archive = self._archive = archive
        self._definition: MetricDefinition = archive.definition
        self._warehouse = warehouse
        self._redis = redis
        self._partial = partial
        self._cluster = cluster
        self._open_batch_timeout_s = open_batch_timeout_s
        self._copies = TableCopies(warehouse, archive.definition)
        self._owner = f"rebuild {uuid4()}"

    def plan(self, first: date, last: date) -> list[DayPlan]:
        """Return a plan for every day of the period that has archived events."""
        now = datetime.now(UTC)
        plans = []
        for day in self._archive.days():
            if first <= day <= last:
                # Counted first: events are in the archive before they are in the tables.
                counted = count_events_of_day(self._warehouse, self._definition, day)
                files = self._files(day, self._archive.batches(day))
                plans.append(
                    DayPlan(
                        metric=self._definition.name,
                        day=day.isoformat(),
                        archived=sum(file.rows for file in files),
                        counted=counted,
                        files=len(files),
                        tables=[table.name for table in tables_retaining(self._definition, day, now)],
                    )
                )
        return plans

    def run(self, plans: Iterable[DayPlan], session: SparkSession, on_progress: ProgressCallback) -> None:
        """Rebuild the days, oldest first, except those that no table retains.

        Raises RebuildRefused at a day that cannot be rebuilt; the days before it are rebuilt.
        """
        for plan in plans:
            if plan.tables:
                self._check_complete(plan.day, plan.archived, plan.counted)
        try:
            for plan in plans:
                if plan.tables and plan.archived:
                    self._copies.create()
                    self._rebuild_day(plan, session, on_progress)
        finally:
            self._copies.drop()

    def _rebuild_day(self, plan: DayPlan, session: SparkSession, on_progress: ProgressCallback) -> None:
        folded = _FoldedDay(date.fromisoformat(plan.day))
        while True:
            # Without the lock, and without the open batch, which is folded later.
            new_batches = self._new_batches(folded)
            self._fold(folded, new_batches, session, on_progress)
            self._copies.store_percentiles(folded.day)
            lock = BatchLock(self._redis, self._definition.name, self._owner)
            if not lock.acquire():
                raise RebuildRefused("Another rebuild holds the pipeline. Wait until it has ended")
            hold_started = time.monotonic()
            try:
                self._wait_for_open_batch(lock, folded.day)
                late_batches = self._new_batches(folded)
                if sum(file.rows for file in self._files(folded.day, late_batches)) > MAX_HELD_EVENTS:
                    continue
                self._fold(folded, late_batches, session, on_progress, lock)
                self._swap(plan, folded, lock)
                return
            finally:
                lock.release()
                plan.held_s = round(time.monotonic() - hold_started, 2)

    def _swap(self, plan: DayPlan, folded: _FoldedDay, lock: BatchLock) -> None:
        counted = count_events_of_day(self._warehouse, self._definition, folded.day)
        self._check_complete(plan.day, folded.events, counted)
        copied_events = self._copies.count_events(folded.day)
        if copied_events != folded.events:
            raise RebuildRefused(
                f"{plan.day}: the copies have {copied_events} of {folded.events} archived events. "
                "Nothing was changed; try again"
            )
        self._copies.store_percentiles(folded.day, lock.renew)
        for table in tables_retaining(self._definition, folded.day, datetime.now(UTC)):
            lock.renew()
            self._copies.swap(table, folded.day, self._cluster)
        lock.renew()  # fails if the lock was lost and a batch ran in between
        plan.archived, plan.counted, plan.rebuilt = folded.events, counted, True

    def _wait_for_open_batch(self, lock: BatchLock, day: date) -> None:
        """Wait until the open batch is finished. No new batch begins. Raises RebuildRefused on timeout.

        An open batch stays open if its pipeline was killed. It matters only if it has events of the day.
        """
        deadline = time.monotonic() + self._open_batch_timeout_s
        while (mark := lock.read_open_batch()) is not None:
            if time.monotonic() > deadline:
                break
            lock.renew()
            time.sleep(POLL_INTERVAL_S)
        if mark is not None and batch_name(*mark.batch) in self._archive.batches(day):
            raise RebuildRefused(
                f"Batch {mark.batch_id} of the {self._definition.name} metric has events of {day} and is not "
                "finished, so it is unknown whether they are counted. Let the pipeline finish it "
                "(`penstock pipeline status` shows what it waits for; `penstock pipeline drain` finishes the "
                "batch of a pipeline that was killed), then try again"
            )

    def _new_batches(self, folded: _FoldedDay) -> list[str]:
        """Return the complete batches of the day that are not in the copies yet."""
        mark = BatchLock(self._redis, self._definition.name, self._owner).read_open_batch()
        open_batch = batch_name(*mark.batch) if mark else None
        return [
            name
            for name in self._archive.batches(folded.day)
            if name not in folded.batches and name != open_batch
        ]

    def _fold(
        self,
        folded: _FoldedDay,
        batches: Sequence[str],
        session: SparkSession,
        on_progress: ProgressCallback,
        lock: BatchLock | None = None,
    ) -> None:
        for number, group in enumerate(group_files(self._files(folded.day, batches))):
            if lock is not None:
                lock.renew()
            rows = fold_files(session, self._archive.files.root_url, self._definition, group)
            self._copies.fill(rows, f"{self._owner}:{folded.day}:{len(folded.batches)}:{number}")
            events = sum(file.rows for file in group)
            folded.events += events
            on_progress(folded.day.isoformat(), events)
        folded.batches.update(batches)

    def _files(self, day: date, batches: Sequence[str]) -> list[ArchivedFile]:
        return [file for batch in batches for file in self._archive.files_of(day, batch)]

    def _check_complete(self, day: str, archived: int, counted: int) -> None:
        if archived < counted and not self._partial:
            raise RebuildRefused(
                f"{day}: the archive has {archived} events and the tables have {counted}, so a rebuild would "
                "lose some (was the archive enabled during that day?). Use --partial to rebuild anyway"
            )


def check_has_one_shard(warehouse: Warehouse) -> None:
    """Raise RebuildRefused if the tables are spread over several shards, which swap a day one by one."""
    if is_sharded(warehouse):
        raise RebuildRefused(
            "A ClickHouse cluster with several shards cannot be rebuilt. Rebuild the days in a database with "
            "one shard and copy them (docs/archive.md)"
        )


def group_files(files: Sequence[ArchivedFile]) -> list[list[ArchivedFile]]:
    """Split the files, in the order of their streams, into groups that fit into memory."""
    groups: list[list[ArchivedFile]] = []
    events = GROUP_EVENTS
    for file in sorted(files, key=lambda file: file.order):
        if events >= GROUP_EVENTS:
            groups.append([])
            events = 0
        groups[-1].append(file)
        events += file.rows
    return groups
