"""A metric of one's own: declared, made, filled and asked, in a few lines."""

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
from tests.integration.warehouse.landing import landing_schema

OVEN = MetricDefinition(
    name="oven",
    dimensions=(
        Dimension("bakery", "bk", "where it stands"),
        Dimension("shelf", "sh", "which one", optional=True),
    ),
    counters=(Measure("loaves", "lv", "loaves baked"),),
    gauges=(Measure("heat", "ht", "degrees"),),
    samples=(Measure("bake_ms", "bt", "time in the oven"),),
)


def row(at_s: float, bakery: str, loaves: int, *, shelf: str = "", heat: int | None = None) -> dict[str, Any]:
    seen = None if heat is None else int(at_s * 1000)
    return {
        "bakery": bakery, "shelf": shelf, "at": int(at_s // 5 * 5) * 1_000_000, "events": 1,
        "newest_ms": int(at_s * 1000), "seen_ms": seen, "seen_id": seen, "loaves": loaves,
        "heat_max": heat, "heat_last": heat, "bake_ms": [loaves * 10],
    }  # fmt: skip


@pytest.fixture(scope="module")
def ovens(warehouse: Warehouse) -> Warehouse:
    for statement in metric_statements(OVEN):
        warehouse.command(statement)
    return warehouse


def test_a_new_metric_has_a_series(ovens: Warehouse) -> None:
    now = time.time()
    rows = [
        row(now - 60, "north", 3, heat=200),
        row(now - 60, "north", 4, shelf="top", heat=250),
        row(now - 60, "south", 99, heat=90),
    ]
    ovens.insert_once(landing_table(OVEN), pa.Table.from_pylist(rows, landing_schema(OVEN)), uuid4().hex)
    series = metric_series(ovens, OVEN, {"bakery": "north"}, period="5m", now=now, counted_until=now - 30)
    [point] = [p for p in series["timeseries"] if p["loaves"]]
    assert (point["loaves"], point["heat"], point["complete"]) == (7, {"max": 200, "last": 200}, True)
    assert point["bake_ms"] == {"count": 2, "avg": 35, "max": 40, "p50": 30, "p95": 40, "p99": 40}
    newest = series["timeseries"][-1]
    assert (newest["loaves"], newest["heat"]["last"]) == (0, 200)
    assert (newest["carried"], newest["complete"], newest["bake_ms"]["avg"]) == (True, False, None)
    top = metric_series(ovens, OVEN, {"bakery": "north", "shelf": "top"}, period="5m", now=now)
    assert [p["loaves"] for p in top["timeseries"] if p["loaves"]] == [4]
    assert top["timeseries"][-1]["heat"]["last"] == 250


@pytest.mark.parametrize("of", [{}, {"shelf": "top"}, {"bakery": "north", "town": "x"}])
def test_a_series_is_named_by_its_dimensions(ovens: Warehouse, of: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="is named by bakery, shelf"):
        metric_series(ovens, OVEN, of)
