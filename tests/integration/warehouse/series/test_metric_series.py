"""The series of a metric that only a definition declares."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from penstock.definitions import Dimension, Measure, MetricDefinition
from penstock.errors import InvalidRequest
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import landing_table, metric_statements
from penstock.warehouse.series.metric_series import metric_series
from penstock.warehouse.series.points import SeriesReader
from tests.integration.warehouse.landing_rows import landing_schema

OVEN = MetricDefinition(
    name="oven",
    dimensions=(
        Dimension("bakery", "bk", "the bakery of the oven"),
        Dimension("shelf", "sh", "a shelf of the oven", optional=True),
    ),
    counters=(Measure("loaves", "lv", "loaves baked"),),
    gauges=(Measure("heat", "ht", "degrees"),),
    samples=(Measure("bake_ms", "bt", "time in the oven"),),
)


def oven_row(
    time_s: float, bakery: str, loaves: int, *, shelf: str = "", heat: int | None = None
) -> dict[str, Any]:
    seen_ms = None if heat is None else int(time_s * 1000)
    return {
        "bakery": bakery, "shelf": shelf, "at": int(time_s // 5 * 5) * 1_000_000, "events": 1,
        "newest_ms": int(time_s * 1000), "seen_ms": seen_ms, "seen_id": seen_ms, "loaves": loaves,
        "heat_max": heat, "heat_last": heat, "bake_ms": [loaves * 10],
    }  # fmt: skip


@pytest.fixture(scope="module")
def oven_reader(warehouse: Warehouse) -> SeriesReader:
    """A reader of a warehouse with the tables of the oven metric."""
    for statement in metric_statements(OVEN):
        warehouse.command(statement)
    return SeriesReader(warehouse)


def test_a_new_metric_has_a_series(oven_reader: SeriesReader) -> None:
    now = time.time()
    rows = [
        oven_row(now - 60, "north", 3, heat=200),
        oven_row(now - 60, "north", 4, shelf="top", heat=250),
        oven_row(now - 60, "south", 99, heat=90),
    ]
    table = pa.Table.from_pylist(rows, landing_schema(OVEN))
    oven_reader.warehouse.insert_once(landing_table(OVEN), table, uuid4().hex)
    series = metric_series(
        oven_reader, OVEN, {"bakery": "north"}, period="5m", now_s=now, counted_until_s=now - 30
    )
    [point] = [p for p in series.points if p["loaves"]]
    assert (point["loaves"], point["heat"], point["complete"]) == (7, {"max": 200, "last": 200}, True)
    assert point["bake_ms"] == {"count": 2, "avg": 35, "max": 40, "p50": 30, "p95": 40, "p99": 40}
    newest = series.points[-1]
    assert (newest["loaves"], newest["heat"]["last"]) == (0, 200)
    assert (newest["carried"], newest["complete"], newest["bake_ms"]["avg"]) == (True, False, None)
    top = metric_series(oven_reader, OVEN, {"bakery": "north", "shelf": "top"}, period="5m", now_s=now)
    assert [p["loaves"] for p in top.points if p["loaves"]] == [4]
    assert top.points[-1]["heat"]["last"] == 250


@pytest.mark.parametrize("dimensions", [{}, {"shelf": "top"}, {"bakery": "north", "town": "x"}])
def test_missing_and_unknown_dimensions_are_rejected(
    oven_reader: SeriesReader, dimensions: dict[str, str]
) -> None:
    with pytest.raises(InvalidRequest, match="needs the dimensions bakery, shelf"):
        metric_series(oven_reader, OVEN, dimensions)
