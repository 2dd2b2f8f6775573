"""Read the points of one series in one window, and the gauges known before the window.

All values are columns of plain numbers, with ABSENT for unknown ones: building Python objects for ten
thousand points would take longer than the queries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import numpy as np

from penstock.definitions import MetricDefinition
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import table_gauges, tier_table
from penstock.warehouse.series.cache import SeriesCache, subject_key
from penstock.warehouse.series.last_known import (
    LOOKBACK_BUCKETS,
    LastKnown,
    find_last_known,
    last_present_value,
    lookback_s,
)
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.series.readings import (
    BUCKET,
    SINGLE_THREAD,
    TWO_THREADS,
    Reading,
    Selection,
    bucket_between,
    build_readings,
    empty_columns,
    percentile_names,
    percentiles_valid_name,
    query_aggregated,
    query_unmerged_rows,
)
from penstock.warehouse.series.window import SeriesWindow
from penstock.warehouse.tiers import HOUR

P = ParamSpec("P")
R = TypeVar("R")

MAX_CONCURRENT_QUERIES = 16
"""Queries that a reader runs concurrently with the main query of a series; more wait in a queue."""

PERCENTILE_DELAY_S = 150
"""Buckets that ended this long ago usually have stored percentiles."""

MAX_UNMERGED_ROWS_PER_POINT = 3
"""With more rows per point, ClickHouse aggregates them."""

MAX_LISTED_BUCKETS = 1_000
"""A query lists at most this many buckets; for more it reads all buckets from the first to the last."""


@dataclass(frozen=True, slots=True)
class Points:
    """The points of a window: each column has one value per point, in order.

    Unknown counts are 0, other unknown values ABSENT. `last_known` are the gauges before the window.
    """

    columns: Mapping[str, Column]
    last_known: LastKnown


class SeriesReader:
    """Reads series from one warehouse. Threads may share it.

    It owns the cache and the threads of concurrent queries: ClickHouse works on the queries of a series at
    the same time, so a series takes as long as its longest query, not as all of them. It does not close the
    warehouse.
    """

    def __init__(self, warehouse: Warehouse, *, max_listed_buckets: int = MAX_LISTED_BUCKETS) -> None:
        self.warehouse = warehouse
        self.cache = SeriesCache()
        self.max_listed_buckets = max_listed_buckets
        self._threads = ThreadPoolExecutor(MAX_CONCURRENT_QUERIES, thread_name_prefix="series")

    def submit(self, query: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run a query in another thread."""
        return self._threads.submit(query, *args, **kwargs)

    def close(self) -> None:
        """Start no more threads; queries in flight finish by themselves. Safe to call twice."""
        self._threads.shutdown(wait=False)

    def read_points(
        self,
        definition: MetricDefinition,
        window: SeriesWindow,
        selection: Selection,
        wanted: Collection[str] | None = None,
    ) -> Points:
        """Return the points of the window with the `wanted` columns (default: all).

        A series that was active shortly before the window needs one round trip. One that was active within
        two days needs two, and one that was idle for longer needs three. A missing gauge (most queues have no
        limit) is searched further back once a minute. Missing percentiles of the newest points are read
        concurrently with the first query, and other missing ones in one more.
        """
        # A wider point spans several buckets, and percentiles of buckets cannot be combined.
        stored_percentiles = window.tier.stores_percentiles and window.step_s == window.tier.width_s
        available = build_readings(definition, selection, stored_percentiles=stored_percentiles)
        names = [name for name in available if wanted is None or name in wanted]
        gauges = [
            gauge.name
            for gauge in table_gauges(definition, selection.rollup)
            if f"{gauge.name}_last" in names
        ]
        if gauges and "seen_ms" not in names:
            names.append("seen_ms")
        samples = [
            sample.name
            for sample in definition.samples
            if not set(names).isdisjoint(percentile_names(sample.name))
        ]
        if stored_percentiles:
            names += [valid for name in samples if (valid := percentiles_valid_name(name)) not in names]
        readings = {name: available[name] for name in names}
        tier = _TierReader(self, definition, window, selection)
        newest_percentiles = (
            self.submit(tier.read_newest_percentiles, samples, names)
            if stored_percentiles and samples
            else None
        )
        before_s = lookback_s(window) if gauges else 0
        condition = bucket_between(window.start_s - before_s, window.end_s)
        rows = (
            tier.read_few_rows(readings, condition)
            if stored_percentiles
            else tier.read_aggregated(readings, condition)
        )
        points_before = -(-before_s // window.step_s)
        positions = tier.point_positions(rows) + points_before
        columns: dict[str, Column] = {}
        values_before: dict[str, int | None] = {}
        for name, reading in readings.items():
            column = np.full(points_before + len(window.buckets), reading.default, rows[name].dtype)
            column[positions] = rows[name]
            columns[name] = column[points_before:]
            values_before[name] = last_present_value(column[:points_before])
        from_lookback = LastKnown(
            {name: values_before[f"{name}_last"] for name in gauges}, values_before.get("seen_ms")
        )
        if newest_percentiles is not None:
            tier.replace_invalid_percentiles(samples, newest_percentiles.result(), columns)
        last_known = find_last_known(self.warehouse, self.cache, definition, window, selection, from_lookback)
        return Points(columns, last_known)


@dataclass(frozen=True, slots=True)
class _TierReader:
    """Reads the rows of one series from the tier of its window."""

    reader: SeriesReader
    definition: MetricDefinition
    window: SeriesWindow
    selection: Selection

    def read_aggregated(
        self, readings: Mapping[str, Reading], condition: str, settings: str | None = None
    ) -> dict[str, Column]:
        """Return one value per point that has rows satisfying the condition; ClickHouse aggregates them."""
        window, selection = self.window, self.selection
        bucket = "bucket" if window.step_s == window.tier.width_s else _point_start(window.step_s)
        settings = settings or (TWO_THREADS if window.tier is HOUR else SINGLE_THREAD)
        source = f"{self._rows(condition)} GROUP BY {bucket} {settings}"
        return query_aggregated(
            self.reader.warehouse, readings, source, selection.parameters, f"toUnixTimestamp({bucket})"
        )

    def read_few_rows(self, readings: Mapping[str, Reading], condition: str) -> dict[str, Column]:
        """Return the same for points as wide as the tier's buckets, merging the rows here.

        A series with many rows per point, such as a queue with many groups, is cached as such and left to
        `read_aggregated`.
        """
        window, selection, reader = self.window, self.selection, self.reader
        key = (subject_key(self.definition, selection), window.tier.name)
        if key not in reader.cache.many_rows:
            max_rows = MAX_UNMERGED_ROWS_PER_POINT * (len(window.buckets) + LOOKBACK_BUCKETS)
            columns = query_unmerged_rows(
                reader.warehouse, readings, self._rows(condition), selection.parameters, max_rows
            )
            if columns is not None:
                return columns
            reader.cache.many_rows.add(key)
        return self.read_aggregated(readings, condition)

    def point_positions(self, rows: Mapping[str, Column]) -> Column:
        """Return the position of each row's point in the window; negative before the window."""
        return (rows[BUCKET].astype(np.int64) - self.window.start_s) // self.window.step_s

    def read_newest_percentiles(self, samples: Sequence[str], wanted: Collection[str]) -> dict[str, Column]:
        """Return the percentiles of the newest points, which cannot be stored yet."""
        width = self.window.tier.width_s
        since = max(int(self.window.now_s - PERCENTILE_DELAY_S) // width * width, self.window.start_s)
        readings = self._digest_readings(samples, wanted)
        if since >= self.window.end_s:
            return empty_columns(readings)
        return self.read_aggregated(readings, bucket_between(since, self.window.end_s), SINGLE_THREAD)

    def replace_invalid_percentiles(
        self, samples: Sequence[str], newest: Mapping[str, Column], columns: dict[str, Column]
    ) -> None:
        """Replace stored percentiles that do not cover all samples of their point, using the digests."""
        is_valid = np.logical_and.reduce([columns[percentiles_valid_name(name)] != 0 for name in samples])
        invalid = np.flatnonzero(~is_valid)
        if not len(invalid):
            return
        replacements = [newest]
        missing = (
            np.setdiff1d(invalid, self.point_positions(newest)) * self.window.step_s + self.window.start_s
        )
        if len(missing):
            condition = bucket_between(int(missing[0]), int(missing[-1]) + self.window.step_s)
            if len(missing) <= self.reader.max_listed_buckets:
                buckets = ", ".join(f"toDateTime({start_s}, 'UTC')" for start_s in missing)
                condition += f" AND bucket IN ({buckets})"
            replacements.append(self.read_aggregated(self._digest_readings(samples, columns), condition))
        for replacement in replacements:
            positions = self.point_positions(replacement)
            is_replaced = np.isin(positions, invalid)
            for name in replacement.keys() & columns.keys():
                columns[name][positions[is_replaced]] = replacement[name][is_replaced]

    def _rows(self, condition: str) -> str:
        table = tier_table(self.definition, self.window.tier, self.selection.rollup)
        return f"FROM {table} WHERE {self.selection.where} AND {condition}"

    def _digest_readings(self, samples: Sequence[str], wanted: Collection[str]) -> dict[str, Reading]:
        readings = build_readings(self.definition, self.selection)
        names = [name for sample in samples for name in percentile_names(sample) if name in wanted]
        return {name: readings[name] for name in names}


def _point_start(step_s: int) -> str:
    return f"toDateTime(intDiv(toUnixTimestamp(bucket), {step_s}) * {step_s}, 'UTC')"
