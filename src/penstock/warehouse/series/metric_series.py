"""The series of any metric, derived from its definition alone: a new metric needs no code here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from penstock.definitions import MetricDefinition
from penstock.errors import InvalidRequest
from penstock.warehouse.schema import QUANTILES
from penstock.warehouse.series.carry_forward import carry_forward
from penstock.warehouse.series.completeness import read_completeness
from penstock.warehouse.series.merge import ANY_ROW
from penstock.warehouse.series.points import Points, SeriesReader
from penstock.warehouse.series.queue_columns import MS_DECIMALS, max_and_last
from penstock.warehouse.series.readings import Selection
from penstock.warehouse.series.series_columns import ColumnTree, Flags, Numbers, Timestamps, point_starts
from penstock.warehouse.series.series_response import Series
from penstock.warehouse.series.window import SeriesRequest, resolve_window

_SAMPLE_DECIMALS = {
    "count": 0,
    "avg": MS_DECIMALS,
    "max": 0,
    **{f"p{level * 100:g}": MS_DECIMALS for level in QUANTILES},
}


def metric_series(
    reader: SeriesReader,
    definition: MetricDefinition,
    dimensions: Mapping[str, str],
    **request: Unpack[SeriesRequest],
) -> Series:
    """Return the series of one subject, identified by its dimensions.

    Each point has its counters, its gauges as `{max, last}`, its samples as `{count, avg, max, p50, …}`, and
    the flags `carried` and `complete`. If an optional dimension is omitted, counts are summed over it, and
    gauges are those observed without it. Raises InvalidRequest for a missing or unknown dimension.
    """
    selection = _select(definition, dimensions)
    counted_until_s = request.get("counted_until_s")
    window = resolve_window(**request)
    points = reader.read_points(definition, window, selection)
    gauges = carry_forward(window, list(points.last_known.gauges), points)
    completeness = read_completeness(reader.warehouse, definition, window)
    columns: ColumnTree = {
        "timestamp": Timestamps(point_starts(window)),
        **{counter.name: Numbers(points.columns[counter.name]) for counter in definition.counters},
        **{name: max_and_last(gauges, name) for name in gauges.last},
        **{sample.name: _sample_columns(points, sample.name) for sample in definition.samples},
        "carried": Flags(gauges.carried),
        "complete": Flags(completeness.of_points(window, counted_until_s)),
    }
    subject = {"metric": definition.name, "of": dict(dimensions)}
    return Series(subject, window, completeness, counted_until_s, columns)


def _sample_columns(points: Points, sample: str) -> dict[str, Numbers]:
    return {
        statistic: Numbers(points.columns[f"{sample}_{statistic}"], decimals)
        for statistic, decimals in _SAMPLE_DECIMALS.items()
    }


def _select(definition: MetricDefinition, dimensions: Mapping[str, str]) -> Selection:
    known = {dimension.name: dimension for dimension in definition.dimensions}
    missing = [name for name, dimension in known.items() if not dimension.optional and name not in dimensions]
    unknown = [name for name in dimensions if name not in known]
    if missing or unknown:
        raise InvalidRequest(
            f"A series of {definition.name} needs the dimensions {', '.join(known)}. "
            f"Missing: {', '.join(missing) or 'none'}. Unknown: {', '.join(unknown) or 'none'}."
        )
    omitted = [f"`{name}` = ''" for name in known if name not in dimensions]
    return Selection(
        where=" AND ".join(f"`{name}` = {{{name}:String}}" for name in dimensions) or ANY_ROW,
        parameters=dict(dimensions),
        gauge_condition=" AND ".join(omitted) or ANY_ROW,
    )
