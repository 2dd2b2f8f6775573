"""The series of any metric, by its definition alone: what a new metric can be asked without any code."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Unpack

from penstock.clock import iso, to_utc
from penstock.definitions import MetricDefinition
from penstock.errors import InvalidRequest
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import QUANTILES
from penstock.warehouse.series.carry_forward import carry_forward
from penstock.warehouse.series.completeness import read_completeness
from penstock.warehouse.series.entries import known
from penstock.warehouse.series.points import read_points
from penstock.warehouse.series.queue_series import Asked
from penstock.warehouse.series.readings import ANY, Selection
from penstock.warehouse.series.window import window

_SAMPLED = ("count", "avg", "max", *(f"p{level * 100:g}" for level in QUANTILES))


def metric_series(
    client: Warehouse, definition: MetricDefinition, of: Mapping[str, str], **asked: Unpack[Asked]
) -> dict[str, Any]:
    """The series of one thing, named by its dimensions, ready to be JSON.

    Each point has its counters, its gauges as `{max, last}`, its samples as `{count, avg, max, p50, …}`, and
    the marks `carried` and `complete`. An optional dimension may be left out: counts are then summed over it,
    and gauges are those observed without it. Raises InvalidRequest for one that is missing or not known.
    """
    selection = _selection(definition, of)
    now, counted_until = asked.get("now"), asked.get("counted_until")
    span = window(
        period=asked.get("period", "30m"),
        start=asked.get("start"),
        end=asked.get("end"),
        resolution=asked.get("resolution"),
        now_s=time.time() if now is None else now,
    )
    points = read_points(client, definition, span, selection)
    gauges = carry_forward(span, list(points.before.gauges), points)
    columns: dict[str, list[Any]] = {name: known(column) for name, column in points.columns.items()}
    tops = {name: known(column) for name, column in gauges.highest.items()}
    lasts = {name: known(column) for name, column in gauges.last.items()}
    carried = gauges.carried.tolist()
    entries = []
    for number, at in enumerate(span.buckets):
        entry: dict[str, Any] = {"timestamp": iso(to_utc(at))}
        for counter in definition.counters:
            entry[counter.name] = columns[counter.name][number]
        for name in lasts:
            entry[name] = {"max": tops[name][number], "last": lasts[name][number]}
        for sample in definition.samples:
            entry[sample.name] = {part: columns[f"{sample.name}_{part}"][number] for part in _SAMPLED}
        entry["carried"] = carried[number]
        entry["complete"] = None if counted_until is None else at + span.step_s <= counted_until
        entries.append(entry)
    completeness = read_completeness(client, definition, span)
    return {
        "metric": definition.name,
        "of": dict(of),
        "period": {"start": iso(to_utc(span.start_s)), "end": iso(to_utc(min(span.end_s, span.now_s)))},
        "resolution": span.resolution,
        "tier": span.tier.name,
        "freshness": completeness.freshness,
        "completeness": completeness.described(counted_until),
        "timeseries": entries,
    }


def _selection(definition: MetricDefinition, of: Mapping[str, str]) -> Selection:
    known = {dimension.name: dimension for dimension in definition.dimensions}
    missing = [name for name, dimension in known.items() if not dimension.optional and name not in of]
    unknown = [name for name in of if name not in known]
    if missing or unknown:
        raise InvalidRequest(
            f"a series of {definition.name} is named by {', '.join(known)}; "
            f"missing: {', '.join(missing) or 'none'}, not known: {', '.join(unknown) or 'none'}"
        )
    left_out = [f"`{name}` = ''" for name in known if name not in of]
    return Selection(
        where=" AND ".join(f"`{name}` = {{{name}:String}}" for name in of) or ANY,
        parameters=dict(of),
        observed=" AND ".join(left_out) or ANY,
    )
