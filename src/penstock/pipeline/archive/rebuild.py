"""Tiers computed anew from the archive, by whole days, and swapped in.

For each day: what the archive holds is folded into copies of the tables; then the pipeline is held back for
a moment, between two batches, so that archive and tables hold the same events; what has come meanwhile is
added to the copies; and the day is swapped, table by table. So a day may be rebuilt while events of it still
come in, even today, and none is lost or counted twice.

Killed at any moment, it leaves the live tables as they were, or with some of them swapped, each complete. The
hold expires by itself, and the next run takes the copies away.
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
from penstock.pipeline.archive.rebuild_fold import landing_table_of
from penstock.streams.batch_lock import Hold
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.table_copies import TableCopies, count_events_of_day, tables_retaining

GROUP_EVENTS = 1_000_000
"""Folded at a time: what bounds the memory."""

QUICK_EVENTS = 200_000
"""As many may be added while the pipeline is held back."""

PATIENCE_S = 45.0
"""How long a batch under way may take to end."""

LOOK_S = 0.1


class RebuildRefused(PenstockError):
    code = "rebuild_refused"
    title = "The day cannot be rebuilt"


@dataclass(slots=True)
class DayPlan:
    """What is known about a day before it is rebuilt."""

    metric: str
    day: str
    archived: int
    """Events in the archive."""
    counted: int
    """Events in the live tables."""
    files: int
    tables: list[str]
    """Those that still keep the day."""
    rebuilt: bool = False
    held_s: float = 0.0
    """How long the pipeline was held back."""


@dataclass(slots=True)
class _Day:
    day: date
    batches: set[str] = field(default_factory=set)
    events: int = 0


Tell = Callable[[str, int], None]
"""Called with the day under way, and with how many more events were folded."""


class Rebuild:
    """The rebuilding of one metric's days. Its user holds the archive's lock."""

    def __init__(
        self,
        archive: Archive,
        warehouse: Warehouse,
        redis: Redis,
        *,
        partial: bool = False,
        cluster: str = "",
    ) -> None:
        self.archive = self._archive = archive
        self._definition: MetricDefinition = archive.definition
        self._warehouse = warehouse
        self._redis = redis
        self._partial = partial
        self._cluster = cluster
        self._copies = TableCopies(warehouse, archive.definition)
        self._owner = f"rebuild {uuid4()}"

    def plan(self, first: date, last: date) -> list[DayPlan]:
        """The days of the period that the archive has something of."""
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

    def run(self, plans: Iterable[DayPlan], session: SparkSession, tell: Tell) -> None:
        """Rebuild the days, oldest first. Those that no table keeps any more are passed over.

        Raises RebuildRefused at a day that cannot be done; the days before it are.
        """
        for plan in plans:
            if plan.tables:
                self._check_complete(plan.day, plan.archived, plan.counted)
        try:
            for plan in plans:
                if plan.tables and plan.archived:
                    self._copies.create()
                    self._rebuild(plan, session, tell)
        finally:
            self._copies.drop()

    def _rebuild(self, plan: DayPlan, session: SparkSession, tell: Tell) -> None:
        done = _Day(date.fromisoformat(plan.day))
        while True:
            # Outside the hold, with a batch under way left for later.
            new = self._new_batches(done)
            self._fold(done, new, session, tell)
            self._copies.store_percentiles(done.day)
            hold = Hold(self._redis, self._definition.name, self._owner)
            if not hold.take():
                raise RebuildRefused("another rebuild holds the pipeline back: wait until it has ended")
            began = time.monotonic()
            try:
                self._wait_for_the_open_batch(hold, done.day)
                rest = self._new_batches(done)
                if sum(file.rows for file in self._files(done.day, rest)) > QUICK_EVENTS:
                    continue
                self._fold(done, rest, session, tell, hold)
                self._swap(plan, done, hold)
                return
            finally:
                hold.release()
                plan.held_s = round(time.monotonic() - began, 2)

    def _swap(self, plan: DayPlan, done: _Day, hold: Hold) -> None:
        counted = count_events_of_day(self._warehouse, self._definition, done.day)
        self._check_complete(plan.day, done.events, counted)
        found = self._copies.count_events(done.day)
        if found != done.events:
            raise RebuildRefused(
                f"{plan.day}: the copies have {found} of {done.events} archived events; nothing was changed"
            )
        self._copies.store_percentiles(done.day, hold.renew)
        for table in tables_retaining(self._definition, done.day, datetime.now(UTC)):
            hold.renew()
            self._copies.swap(table, done.day, self._cluster)
        hold.renew()  # or a batch may have come in between
        plan.archived, plan.counted, plan.rebuilt = done.events, counted, True

    def _wait_for_the_open_batch(self, hold: Hold, day: date) -> None:
        """No batch begins any more. One that had begun ends soon, unless its pipeline was killed."""
        deadline = time.monotonic() + PATIENCE_S
        while (mark := hold.open_batch()) is not None:
            if time.monotonic() > deadline:
                break
            hold.renew()
            time.sleep(LOOK_S)
        if mark is not None and batch_name(*mark.batch) in self._archive.batches(day):
            raise RebuildRefused(
                f"batch {mark.batch_id} of the {self._definition.name} metric has events of {day} and is not "
                "finished: it is not known whether they are counted. Let the pipeline finish it "
                "(`penstock pipeline status` says what it waits for; `penstock pipeline drain` finishes one "
                "that was killed), then try again"
            )

    def _new_batches(self, done: _Day) -> list[str]:
        """The day's batches that are not in the copies yet and that are complete."""
        mark = Hold(self._redis, self._definition.name, self._owner).open_batch()
        under_way = batch_name(*mark.batch) if mark else None
        return [
            name for name in self._archive.batches(done.day) if name not in done.batches and name != under_way
        ]

    def _fold(
        self, done: _Day, batches: Sequence[str], session: SparkSession, tell: Tell, hold: Hold | None = None
    ) -> None:
        for number, group in enumerate(groups(self._files(done.day, batches))):
            if hold is not None:
                hold.renew()
            rows = landing_table_of(session, self._archive.files.root_url, self._definition, group)
            self._copies.fill(rows, f"{self._owner}:{done.day}:{len(done.batches)}:{number}")
            events = sum(file.rows for file in group)
            done.events += events
            tell(done.day.isoformat(), events)
        done.batches.update(batches)

    def _files(self, day: date, batches: Sequence[str]) -> list[ArchivedFile]:
        return [file for batch in batches for file in self._archive.files_of(day, batch)]

    def _check_complete(self, day: str, archived: int, counted: int) -> None:
        if archived < counted and not self._partial:
            raise RebuildRefused(
                f"{day}: the archive has {archived} events and the tables have {counted}, so a rebuild would "
                "lose some (was the archive turned on during that day?). --partial does it nevertheless"
            )


def groups(files: Sequence[ArchivedFile]) -> list[list[ArchivedFile]]:
    """The files in the order of their streams, as many at a time as fit into memory."""
    made: list[list[ArchivedFile]] = []
    events = GROUP_EVENTS
    for file in sorted(files, key=lambda file: file.order):
        if events >= GROUP_EVENTS:
            made.append([])
            events = 0
        made[-1].append(file)
        events += file.rows
    return made
