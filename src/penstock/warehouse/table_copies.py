"""Copies of a metric's tables that a rebuild fills and then swaps in, one whole day at a time.

A copy has the structure of the live table, so `ALTER TABLE … REPLACE PARTITION … FROM …` replaces a day of
the live table atomically and without moving data. Each table is swapped separately. Between two swaps one
tier shows the old numbers and another the new ones; each counts every event once.
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
INSERT_CHUNK_ROWS = 100_000
PERCENTILE_STEP_S = 4 * 3600


class TableCopies:
    """The copies of one metric's tables. The caller ensures that only one process uses them."""

    def __init__(self, warehouse: Warehouse, definition: MetricDefinition) -> None:
        self._warehouse = warehouse
        self._definition = definition
        self._tables = tier_tables(definition)
        self._landing = landing_table(definition) + SUFFIX

    def create(self) -> None:
        """Create empty copies, replacing existing ones."""
        self.drop()
        for statement in copy_statements(self._definition, SUFFIX):
            self._warehouse.command(statement)
        for table in self._tables:
            # A part stores its own expiry time, so the copy needs the TTL before it is filled.
            self._warehouse.command(
                f"ALTER TABLE {table.name}{SUFFIX} MODIFY SETTING ttl_only_drop_parts = 1"
            )
            self._warehouse.command(
                f"ALTER TABLE {table.name}{SUFFIX} MODIFY TTL bucket + INTERVAL {table.tier.days} DAY"
            )

    def drop(self) -> None:
        """Drop the copies, including those left by a killed rebuild."""
        for table in self._tables:
            self._warehouse.command(f"DROP VIEW IF EXISTS {table.name}{SUFFIX}_view SYNC")
        for name in (self._landing, *(table.name + SUFFIX for table in self._tables)):
            self._warehouse.command(f"DROP TABLE IF EXISTS {name} SYNC")

    def fill(self, rows: pa.Table, token: str) -> None:
        """Insert landing rows once per token."""
        for chunk, start in enumerate(range(0, rows.num_rows, INSERT_CHUNK_ROWS)):
            slice_ = rows.slice(start, INSERT_CHUNK_ROWS).combine_chunks()
            self._warehouse.insert_once(self._landing, slice_, f"{token}:{chunk}")

    def count_events(self, day: date) -> int:
        """Return the number of events of the day in the copies."""
        return count_events_of_day(self._warehouse, self._definition, day, SUFFIX)

    def store_percentiles(self, day: date, before_each: Callable[[], None] = lambda: None) -> None:
        """Store the percentiles of the day's buckets, in small steps. Call it before a swap.

        A repeated call after more rows updates only the buckets that have changed.
        """
        start = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
        for since in range(start, start + DAY_S, PERCENTILE_STEP_S):
            for tier in TIERS:
                before_each()
                write_percentiles(
                    self._warehouse, self._definition, tier, since, since + PERCENTILE_STEP_S, SUFFIX
                )

    def swap(self, table: TierTable, day: date, cluster: str = "") -> None:
        """Replace a day of the live table with that of the copy."""
        self._warehouse.command(swap_statement(table, day, cluster))


def swap_statement(table: TierTable, day: date, cluster: str = "") -> str:
    """Return the statement that replaces a day of the live table."""
    on_cluster = f" ON CLUSTER `{cluster}`" if cluster else ""
    partition = f"PARTITION '{day.isoformat()}'"
    return f"ALTER TABLE {table.name}{on_cluster} REPLACE {partition} FROM {table.name}{SUFFIX}"


def tables_retaining(definition: MetricDefinition, day: date, now: datetime) -> list[TierTable]:
    """Return the tables that still hold the day. ClickHouse drops a whole day once its last row expires."""
    return [
        table for table in tier_tables(definition) if day + timedelta(days=1 + table.tier.days) > now.date()
    ]


def count_events_of_day(
    warehouse: Warehouse, definition: MetricDefinition, day: date, suffix: str = ""
) -> int:
    """Return the number of events counted on the day.

    This is the largest count of any hour table, because the metric's own tables leave some events out.
    """
    counts = []
    for table in tier_tables(definition):
        if table.tier == HOUR:
            [row] = warehouse.query(
                f"SELECT sum(events) AS events FROM {table.name}{suffix} WHERE toDate(bucket) = {{day:Date}}",
                {"day": day},
            )
            counts.append(int(row["events"]))
    return max(counts)
