"""Copies of a metric's tables, to be filled beside the live ones and swapped in by whole days.

A copy has the live table's form, so `ALTER TABLE … REPLACE PARTITION … FROM …` puts a day of it in place of
the live one's: at once, and without moving data. Each table is swapped by itself; between two swaps one tier
shows the old numbers and another the new ones, and each has every event once.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from penstock.definitions import MetricDefinition
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import TierTable, copy_statements, landing_table, tier_tables
from penstock.warehouse.series.closed_percentiles import write_percentiles
from penstock.warehouse.tiers import DAY_S, HOUR, TIERS

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIX = "_rebuild"
CHUNK_ROWS = 100_000
STEP_S = 4 * 3600


class Copies:
    """One metric's copies. Whoever uses them is alone with them, which the caller sees to."""

    def __init__(self, warehouse: Warehouse, definition: MetricDefinition) -> None:
        self._warehouse = warehouse
        self._definition = definition
        self._tables = tier_tables(definition)
        self._landing = landing_table(definition) + SUFFIX

    def make(self) -> None:
        """Make them anew, empty."""
        self.drop()
        for statement in copy_statements(self._definition, SUFFIX):
            self._warehouse.command(statement)
        for table in self._tables:
            # A part carries the time at which it is to be forgotten, so it has to be worked out in the copy.
            self._warehouse.command(
                f"ALTER TABLE {table.name}{SUFFIX} MODIFY SETTING ttl_only_drop_parts = 1"
            )
            self._warehouse.command(
                f"ALTER TABLE {table.name}{SUFFIX} MODIFY TTL bucket + INTERVAL {table.tier.days} DAY"
            )

    def drop(self) -> None:
        """Take them away, and those that a run which was killed has left."""
        for table in self._tables:
            self._warehouse.command(f"DROP VIEW IF EXISTS {table.name}{SUFFIX}_view SYNC")
        for name in (self._landing, *(table.name + SUFFIX for table in self._tables)):
            self._warehouse.command(f"DROP TABLE IF EXISTS {name} SYNC")

    def fill(self, rows: pa.Table, token: str) -> None:
        """Insert landing rows. Repeated with the same token, it changes nothing."""
        for chunk, start in enumerate(range(0, rows.num_rows, CHUNK_ROWS)):
            part = rows.slice(start, CHUNK_ROWS).combine_chunks()
            self._warehouse.insert_once(self._landing, part, f"{token}:{chunk}")

    def events(self, day: date) -> int:
        """How many events of the day the copies hold."""
        return events_of_day(self._warehouse, self._definition, day, SUFFIX)

    def complete(self, day: date, before_each: Callable[[], None] = lambda: None) -> None:
        """Write down the percentiles of the day, in small steps: to be done before a swap.

        Done again after more rows, it sees to what has changed.
        """
        start = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
        for since in range(start, start + DAY_S, STEP_S):
            for tier in TIERS:
                before_each()
                write_percentiles(self._warehouse, self._definition, tier, since, since + STEP_S, SUFFIX)

    def swap(self, table: TierTable, day: date, cluster: str = "") -> None:
        """Put the copy's day in place of the live table's."""
        self._warehouse.command(swap_statement(table, day, cluster))


def swap_statement(table: TierTable, day: date, cluster: str = "") -> str:
    where = f" ON CLUSTER `{cluster}`" if cluster else ""
    return f"ALTER TABLE {table.name}{where} REPLACE PARTITION '{day.isoformat()}' FROM {table.name}{SUFFIX}"


def tables_keeping(definition: MetricDefinition, day: date, now: datetime) -> list[TierTable]:
    """The tables that have not forgotten the day. Days are forgotten whole, when their last row is due."""
    return [
        table for table in tier_tables(definition) if day + timedelta(days=1 + table.tier.days) > now.date()
    ]


def events_of_day(warehouse: Warehouse, definition: MetricDefinition, day: date, suffix: str = "") -> int:
    """How many events of the day were counted: in the table that holds the most, as some leave events out."""
    found = []
    for table in tier_tables(definition):
        if table.tier == HOUR:
            [row] = warehouse.query(
                f"SELECT sum(events) AS events FROM {table.name}{suffix} WHERE toDate(bucket) = {{day:Date}}",
                {"day": day},
            )
            found.append(int(row["events"]))
    return max(found)
