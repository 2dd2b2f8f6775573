"""What can be read of a metric's tables: SQL over the rows of a point, and the numbers that it becomes.

Generic over metric definitions. Rows are always aggregated on reading: ClickHouse merges them in its own
time, and until then one bucket may lie in several rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.definitions import MetricDefinition
from penstock.warehouse.schema import QUANTILE_FUNCTION, QUANTILES, table_gauges
from penstock.warehouse.series import packed_maximum
from penstock.warehouse.series.native_format import Column

ANY = "1"
ABSENT = -1
NOT_NULL = "assumeNotNull({})"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows speak for the thing asked about.

    `where` and `parameters` select its rows and must pin the tenant. `counted` says per counter or sample,
    `observed` for all gauges, which of those rows to use: SQL conditions, all rows unless said otherwise.
    `rollup` names the rollup whose tables are read; without it they are the metric's own.
    """

    where: str
    parameters: Mapping[str, Any]
    counted: Mapping[str, str] = field(default_factory=dict)
    observed: str = ANY
    rollup: str | None = None


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function over those rows of a point that fulfil a condition; `form` is what is made of it in SQL."""

    function: str
    column: str
    condition: str = ANY
    form: str = "{}"

    @property
    def sql(self) -> str:
        if self.condition == ANY:
            return self.form.format(f"{self.function}({self.column})")
        name, bracket, levels = self.function.partition("(")
        return self.form.format(f"{name}If{bracket}{levels}({self.column}, {self.condition})")


@dataclass(frozen=True, slots=True)
class Reading:
    """How something is read of a point: aggregates over its rows, by name, and what becomes of them.

    The server aggregates and nothing else: planning a query costs by the expression. `nothing` is what a
    point without rows has.
    """

    aggregates: Mapping[str, Aggregate]
    value: Callable[[Mapping[str, Column]], Column]
    nothing: int = ABSENT


def readings(
    definition: MetricDefinition, selection: Selection, *, written: bool = False
) -> dict[str, Reading]:
    """What can be read of a metric, by name.

    Each counter under its name; `<gauge>_max` and `<gauge>_last`; per sample `_count`, `_avg`, `_max` and
    `_p50`, `_p95`, `_p99`; `seen_ms`, when a gauge was last observed. What is not known is -1.

    With `written` the percentiles are those that were written down, and `<sample>_holds` is 1 where they
    speak for all samples of the point: elsewhere they are worth nothing.
    """
    observed = selection.observed
    seen = Aggregate("max", "seen_ms", observed, NOT_NULL)
    found = {"seen_ms": Reading({"seen_ms": seen}, lambda of: _unless(of["seen_ms"] == 0, of["seen_ms"]))}
    for counter in definition.counters:
        found[counter.name] = _count(counter.name, selection.counted.get(counter.name, ANY))
    for gauge in table_gauges(definition, selection.rollup):
        found |= _gauge(gauge.name, observed)
    for sample in definition.samples:
        found |= _sample(sample.name, selection.counted.get(sample.name, ANY), written)
    return found


def _count(column: str, condition: str) -> Reading:
    return Reading(
        {column: Aggregate("sum", column, condition)}, lambda of: of[column].astype(np.int64), nothing=0
    )


def _gauge(name: str, observed: str) -> dict[str, Reading]:
    last, top = f"{name}_last", f"{name}_max"
    newest = {last: Aggregate("max", last, observed)}
    highest = {top: Aggregate("max", top, observed, NOT_NULL)}
    return {
        top: Reading(newest | highest, lambda of: _unless(packed_maximum.is_nothing(of[last]), of[top])),
        last: Reading(
            newest, lambda of: _unless(packed_maximum.is_nothing(of[last]), packed_maximum.word(of[last], 0))
        ),
    }


def _sample(name: str, condition: str, written: bool) -> dict[str, Reading]:
    count, total, top, best = (f"{name}_{part}" for part in ("count", "sum", "max", "percentiles"))
    counted = {count: Aggregate("sum", count, condition)}
    summed = counted | {total: Aggregate("sum", total, condition)}
    highest = counted | {top: Aggregate("max", top, condition)}
    found = {
        count: _count(count, condition),
        top: Reading(highest, lambda of: _unless(of[count] == 0, of[top])),
        f"{name}_avg": Reading(
            summed,
            lambda of: _unless(of[count] == 0, np.round(of[total] / np.maximum(of[count], 1), 2)),
        ),
    }
    if written:
        newest = counted | {best: Aggregate("max", best, condition)}
        found[holds_name(name)] = Reading(
            newest, lambda of: packed_maximum.word(of[best], 3) == of[count], nothing=1
        )
    merge = QUANTILE_FUNCTION.replace("(", "Merge(", 1)
    for place, level in enumerate(percentile_names(name)):
        merged = Aggregate(merge, f"{name}_digest", condition, f"toFloat64({{}}[{place + 1}])")
        found[level] = (
            Reading(newest, _written(best, place, count))
            if written
            else Reading(counted | {level: merged}, _merged(level, count))
        )
    return found


def _written(best: str, place: int, count: str) -> Callable[[Mapping[str, Column]], Column]:
    return lambda of: _unless(of[count] == 0, packed_maximum.word(of[best], place) / 100)


def _merged(level: str, count: str) -> Callable[[Mapping[str, Column]], Column]:
    return lambda of: _unless(of[count] == 0, np.round(of[level], 2))


def _unless(absent: Column, values: Column) -> Column:
    kind = np.float64 if values.dtype.kind == "f" else np.int64
    return np.where(absent, ABSENT, values.astype(kind))


def percentile_names(sample: str) -> tuple[str, ...]:
    return tuple(f"{sample}_p{level * 100:g}" for level in QUANTILES)


def holds_name(sample: str) -> str:
    return f"{sample}_holds"


def between(since_s: int, until_s: int) -> str:
    """The rows whose buckets start in this time."""
    return f"bucket >= toDateTime({since_s}, 'UTC') AND bucket < toDateTime({until_s}, 'UTC')"
