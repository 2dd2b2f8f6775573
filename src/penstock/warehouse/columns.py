"""What can be read of a metric's tables, as SQL over the rows of a point.

Generic over metric definitions. Rows are always aggregated on reading: ClickHouse merges them in its own
time, and until then one bucket may lie in several rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.definitions import MetricDefinition
from penstock.warehouse import packed
from penstock.warehouse.schema import QUANTILE_FUNCTION, QUANTILES, table_gauges

ANY = "1"
ABSENT = -1


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


def column_expressions(
    definition: MetricDefinition, selection: Selection, *, written: bool = False
) -> dict[str, str]:
    """What can be read of a metric, by name, as SQL over the rows of a point.

    Each counter under its name; `<gauge>_max` and `<gauge>_last`; per sample `_count`, `_avg`, `_max` and
    `_p50`, `_p95`, `_p99`; `seen_ms`, when a gauge was last observed. What is not known is -1.

    With `written` the percentiles are those that were written down, and `<sample>_holds` is 1 where they
    speak for all samples of the point: elsewhere they are worth nothing.
    """
    observed = selection.observed
    found = {"seen_ms": f"toInt64(ifNull({_over('max', 'seen_ms', observed)}, {ABSENT}))"}
    for counter in definition.counters:
        condition = selection.counted.get(counter.name, ANY)
        found[counter.name] = _over("sum", counter.name, condition)
    for gauge in table_gauges(definition, selection.rollup):
        name = gauge.name
        highest = _over("max", f"{name}_max", observed)
        newest = _over("max", f"{name}_last", observed)
        found[f"{name}_max"] = f"toInt64(ifNull({highest}, {ABSENT}))"
        found[f"{name}_last"] = packed.observed_value(newest, str(ABSENT))
    for sample in definition.samples:
        condition = selection.counted.get(sample.name, ANY)
        name = sample.name
        count, total = (_over("sum", f"{name}_{part}", condition) for part in ("count", "sum"))
        found[f"{name}_count"] = f"toInt64({count})"
        found[f"{name}_max"] = f"if({count} = 0, {ABSENT}, toInt64({_over('max', f'{name}_max', condition)}))"
        found[f"{name}_avg"] = f"if({count} = 0, {ABSENT}., round({total} / {count}, 2))"
        best = _over("max", f"{name}_percentiles", condition)
        merged = _over(QUANTILE_FUNCTION.replace("(", "Merge(", 1), f"{name}_digest", condition)
        for place, level in enumerate(percentile_names(name)):
            value = (
                packed.percentile(best, place) if written else f"round(toFloat64({merged}[{place + 1}]), 2)"
            )
            found[level] = f"if({count} = 0, {ABSENT}., {value})"
        if written:
            found[holds_name(name)] = f"{packed.percentiles_count(best)} = {count}"
    return found


def percentile_names(sample: str) -> tuple[str, ...]:
    return tuple(f"{sample}_p{level * 100:g}" for level in QUANTILES)


def holds_name(sample: str) -> str:
    return f"{sample}_holds"


def between(since_s: int, until_s: int) -> str:
    """The rows whose buckets start in this time."""
    return f"bucket >= toDateTime({since_s}, 'UTC') AND bucket < toDateTime({until_s}, 'UTC')"


def _over(function: str, column: str, condition: str) -> str:
    """An aggregate over those rows of a point that fulfil the condition."""
    if condition == ANY:
        return f"{function}({column})"
    name, bracket, levels = function.partition("(")
    return f"{name}If{bracket}{levels}({column}, {condition})"
