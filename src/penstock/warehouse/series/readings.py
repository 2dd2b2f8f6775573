"""Readings: SQL aggregates over the rows of a point, and the values computed from them.

Readings are derived from a metric definition. Queries always aggregate or merge rows, because ClickHouse
merges them in the background, and until then a bucket may consist of several rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from penstock.definitions import MetricDefinition
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import QUANTILE_FUNCTION, QUANTILES, table_gauges
from penstock.warehouse.series import packed_maximum
from penstock.warehouse.series.merge import ANY_ROW, Aggregate, merge_rows, select_expressions
from penstock.warehouse.series.native_format import Column

ABSENT = -1
"""The value of a point whose gauge or sample is unknown."""

BUCKET = "bucket_s"
"""The column of a query result with the start of each bucket, in seconds since the epoch."""

NOT_NULL = "assumeNotNull({})"

SINGLE_THREAD = "SETTINGS max_threads = 1, optimize_move_to_prewhere = 0, max_threads_for_indexes = 1"
"""A series is a few thousand rows that the primary key finds in small granules. A second thread, or reading
the key columns first (PREWHERE), costs more than it saves."""

TWO_THREADS = SINGLE_THREAD.replace("max_threads = 1", "max_threads = 2", 1)
"""Each day is a separate part, and opening many parts takes longer than reading them."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows of one series, such as those of a queue.

    `where` and `parameters` select the rows and must restrict them to one tenant. `count_conditions` maps a
    counter or sample to the SQL condition of the rows it uses; `gauge_condition` is the condition of all
    gauges. Without a condition all rows are used. `rollup` names the rollup whose tables are read; None means
    the metric's own tables.
    """

    where: str
    parameters: Mapping[str, str]
    count_conditions: Mapping[str, str] = field(default_factory=dict)
    gauge_condition: str = ANY_ROW
    rollup: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """One value per point: the aggregates it needs, and the function that computes it from them.

    The server only aggregates, because planning a query costs time per expression. `default` is the value of
    a point without rows.
    """

    aggregates: Mapping[str, Aggregate]
    compute: Callable[[Mapping[str, Column]], Column]
    default: int = ABSENT


def build_readings(
    definition: MetricDefinition, selection: Selection, *, stored_percentiles: bool = False
) -> dict[str, Reading]:
    """Return all readings of a metric by name.

    These are each counter under its name; `<gauge>_max` and `<gauge>_last`; per sample `_count`, `_avg`,
    `_max` and `_p50`, `_p95`, `_p99`; and `seen_ms`, the time of the last observation of a gauge. Unknown
    values are ABSENT.

    With `stored_percentiles` the percentiles come from the stored columns instead of the digests, and
    `percentiles_valid_name(sample)` is 1 where they cover all samples of the point. Elsewhere they are
    invalid.
    """
    condition = selection.gauge_condition
    seen = Aggregate("max", "seen_ms", condition, NOT_NULL)
    readings = {
        "seen_ms": Reading(
            {"seen_ms": seen}, lambda values: _absent_where(values["seen_ms"] == 0, values["seen_ms"])
        )
    }
    for counter in definition.counters:
        readings[counter.name] = _counter_reading(
            counter.name, selection.count_conditions.get(counter.name, ANY_ROW)
        )
    for gauge in table_gauges(definition, selection.rollup):
        readings |= _gauge_readings(gauge.name, condition)
    for sample in definition.samples:
        sample_condition = selection.count_conditions.get(sample.name, ANY_ROW)
        readings |= _sample_readings(sample.name, sample_condition, stored_percentiles)
    return readings


def _counter_reading(column: str, condition: str) -> Reading:
    return Reading(
        {column: Aggregate("sum", column, condition)},
        lambda values: values[column].astype(np.int64),
        default=0,
    )


def _gauge_readings(name: str, condition: str) -> dict[str, Reading]:
    last, highest = f"{name}_last", f"{name}_max"
    last_aggregate = {last: Aggregate("max", last, condition)}
    max_aggregate = {highest: Aggregate("max", highest, condition, NOT_NULL)}
    return {
        highest: Reading(
            last_aggregate | max_aggregate,
            lambda values: _absent_where(packed_maximum.is_empty(values[last]), values[highest]),
        ),
        last: Reading(
            last_aggregate,
            lambda values: _absent_where(
                packed_maximum.is_empty(values[last]),
                packed_maximum.unpack_word(values[last], packed_maximum.VALUE_WORD),
            ),
        ),
    }


def _sample_readings(name: str, condition: str, stored_percentiles: bool) -> dict[str, Reading]:
    count, total, highest, stored = f"{name}_count", f"{name}_sum", f"{name}_max", f"{name}_percentiles"
    count_aggregate = {count: Aggregate("sum", count, condition)}
    sum_aggregates = count_aggregate | {total: Aggregate("sum", total, condition)}
    max_aggregates = count_aggregate | {highest: Aggregate("max", highest, condition)}
    readings = {
        count: _counter_reading(count, condition),
        highest: Reading(max_aggregates, lambda values: _absent_where(values[count] == 0, values[highest])),
        f"{name}_avg": Reading(
            sum_aggregates,
            lambda values: _absent_where(
                values[count] == 0, np.round(values[total] / np.maximum(values[count], 1), 2)
            ),
        ),
    }
    if stored_percentiles:
        stored_aggregates = count_aggregate | {stored: Aggregate("max", stored, condition)}
        readings[percentiles_valid_name(name)] = Reading(
            stored_aggregates,
            lambda values: (
                packed_maximum.unpack_word(values[stored], packed_maximum.COUNT_WORD) == values[count]
            ),
            default=1,
        )
    merge_function = QUANTILE_FUNCTION.replace("(", "Merge(", 1)
    for index, percentile in enumerate(percentile_names(name)):
        digest = Aggregate(merge_function, f"{name}_digest", condition, f"toFloat64({{}}[{index + 1}])")
        readings[percentile] = (
            Reading(stored_aggregates, _compute_stored_percentile(stored, index, count))
            if stored_percentiles
            else Reading(
                count_aggregate | {percentile: digest}, _compute_merged_percentile(percentile, count)
            )
        )
    return readings


def _compute_stored_percentile(
    stored: str, index: int, count: str
) -> Callable[[Mapping[str, Column]], Column]:
    return lambda values: _absent_where(
        values[count] == 0, packed_maximum.unpack_word(values[stored], index) / 100
    )


def _compute_merged_percentile(percentile: str, count: str) -> Callable[[Mapping[str, Column]], Column]:
    return lambda values: _absent_where(values[count] == 0, np.round(values[percentile], 2))


def _absent_where(is_absent: Column, values: Column) -> Column:
    dtype = np.float64 if values.dtype.kind == "f" else np.int64
    return np.where(is_absent, ABSENT, values.astype(dtype))


def percentile_names(sample: str) -> tuple[str, ...]:
    """Return the names of a sample's percentile readings."""
    return tuple(f"{sample}_p{level * 100:g}" for level in QUANTILES)


def percentiles_valid_name(sample: str) -> str:
    """Return the name of the reading that tells whether a sample's stored percentiles are valid."""
    return f"{sample}_percentiles_valid"


def bucket_between(since_s: int, until_s: int) -> str:
    """Return the SQL condition of buckets that start at `since_s` or later and before `until_s`."""
    return f"bucket >= toDateTime({since_s}, 'UTC') AND bucket < toDateTime({until_s}, 'UTC')"


def query_aggregated(
    warehouse: Warehouse,
    readings: Mapping[str, Reading],
    source: str,
    parameters: Mapping[str, str],
    bucket: str = "0",
) -> dict[str, Column]:
    """Let ClickHouse aggregate the rows of `source` (FROM and following clauses).

    Returns one value per group for each reading, and the SQL expression `bucket` under BUCKET.
    """
    aggregates = _aggregates(readings)
    # The prefix is needed because an alias with a column's name would shadow the column.
    expressions = [
        f"{bucket} AS c_{BUCKET}",
        *(f"{aggregate.sql} AS c_{name}" for name, aggregate in aggregates.items()),
    ]
    response = warehouse.query_columns(f"SELECT {', '.join(expressions)} {source}", parameters)
    if not response:
        return empty_columns(readings)
    values = {name: response[f"c_{name}"] for name in aggregates}
    return {BUCKET: response[f"c_{BUCKET}"], **_compute(readings, values)}


def query_unmerged_rows(
    warehouse: Warehouse,
    readings: Mapping[str, Reading],
    source: str,
    parameters: Mapping[str, str],
    max_rows: int,
) -> dict[str, Column] | None:
    """Read the rows of `source` and merge them here, by bucket; None if there are `max_rows` rows or more.

    The readings may only use sums and maxima. The rows are sorted, because ClickHouse then sends them in few
    blocks instead of one block per part.
    """
    aggregates = _aggregates(readings)
    expressions = [f"toUnixTimestamp(bucket) AS c_{BUCKET}", *select_expressions(aggregates)]
    response = warehouse.query_columns(
        f"SELECT {', '.join(expressions)} {source} ORDER BY bucket LIMIT {max_rows} {TWO_THREADS}", parameters
    )
    if not response:
        return empty_columns(readings)
    buckets = response[f"c_{BUCKET}"]
    if len(buckets) == max_rows:
        return None
    buckets, values = merge_rows(response, buckets, aggregates)
    return {BUCKET: buckets, **_compute(readings, values)}


def empty_columns(readings: Mapping[str, Reading]) -> dict[str, Column]:
    """Return the result of a query that found no rows."""
    return {name: np.empty(0, np.int64) for name in (BUCKET, *readings)}


def _aggregates(readings: Mapping[str, Reading]) -> dict[str, Aggregate]:
    return {
        name: aggregate for reading in readings.values() for name, aggregate in reading.aggregates.items()
    }


def _compute(readings: Mapping[str, Reading], values: Mapping[str, Column]) -> dict[str, Column]:
    return {name: reading.compute(values) for name, reading in readings.items()}
