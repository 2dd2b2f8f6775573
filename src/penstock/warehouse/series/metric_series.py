"""The series of any metric, derived from its definition alone: a new metric needs no code here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from penstock.clock import iso, to_utc
from penstock.definitions import MetricDefinition
from penstock.errors import InvalidRequest
from penstock.warehouse.schema import QUANTILES
from penstock.warehouse.series.carry_forward import carry_forward
from penstock.warehouse.series.completeness import read_completeness
from penstock.warehouse.series.entries import SeriesEntry, to_json_numbers
from penstock.warehouse.series.merge import ANY_ROW
from penstock.warehouse.series.points import SeriesReader
from penstock.warehouse.series.queue_series import SeriesResponse, build_response
from penstock.warehouse.series.readings import Selection
from penstock.warehouse.series.window import SeriesRequest, resolve_window

_SAMPLE_STATISTICS = ("count", "avg", "max", *(f"p{level * 100:g}" for level in QUANTILES))


def metric_series(
    reader: SeriesReader,
    definition: MetricDefinition,
    dimensions: Mapping[str, str],
    **request: Unpack[SeriesRequest],
) -> SeriesResponse:
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
    columns = {name: to_json_numbers(column) for name, column in points.columns.items()}
    max_values = {name: to_json_numbers(column) for name, column in gauges.max.items()}
    last_values = {name: to_json_numbers(column) for name, column in gauges.last.items()}
    carried = gauges.carried.tolist()
    completeness = read_completeness(reader.warehouse, definition, window)
    complete = completeness.of_points(window, counted_until_s)
    entries = []
    for number, start_s in enumerate(window.buckets):
        entry: SeriesEntry = {"timestamp": iso(to_utc(start_s))}
        for counter in definition.counters:
            entry[counter.name] = columns[counter.name][number]
        for name in last_values:
            entry[name] = {"max": max_values[name][number], "last": last_values[name][number]}
        for sample in definition.samples:
            entry[sample.name] = {
                statistic: columns[f"{sample.name}_{statistic}"][number] for statistic in _SAMPLE_STATISTICS
            }
        entry["carried"] = carried[number]
        entry["complete"] = complete[number]
        entries.append(entry)
    return {
        "metric": definition.name,
        "of": dict(dimensions),
        **build_response(window, completeness, counted_until_s, entries),
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
