"""Two ways to have what readings need: aggregated by ClickHouse, or rows as they lie, put together here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.series.merge import merged, selected
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.series.readings import Aggregate, Reading

QUICKLY = "SETTINGS max_threads = 1, optimize_move_to_prewhere = 0, max_threads_for_indexes = 1"
"""A series is a few thousand rows that the primary key finds in small granules: a second thread, or a first
look at the key columns alone, costs more than it saves."""

SIDE_BY_SIDE = QUICKLY.replace("max_threads = 1", "max_threads = 2", 1)
"""Days lie in a part each, and opening many of those takes longer than reading them."""


def aggregated(
    warehouse: Warehouse,
    ways: Mapping[str, Reading],
    source: str,
    parameters: Mapping[str, Any],
    at: str = "0",
) -> dict[str, Column]:
    """What the ways make of the source's rows, which may be grouped, and `at`."""
    aggregates = _aggregates(ways)
    # An alias named like a column would shadow it.
    asked = [f"{at} AS c_at", *(f"{found.sql} AS c_{name}" for name, found in aggregates.items())]
    answer = warehouse.query_columns(f"SELECT {', '.join(asked)} {source}", parameters)
    if not answer:
        return nothing(ways)
    of = {name: answer[f"c_{name}"] for name in aggregates}
    return {"at": answer["c_at"], **_made(ways, of)}


def as_they_lie(
    warehouse: Warehouse, ways: Mapping[str, Reading], source: str, parameters: Mapping[str, Any], most: int
) -> dict[str, Column] | None:
    """The same by bucket, of readings that only add and compare; None if there are `most` rows or more.

    In order, ClickHouse sends all rows together, not the few of each part by themselves.
    """
    aggregates = _aggregates(ways)
    asked = ["toUnixTimestamp(bucket) AS c_at", *selected(aggregates)]
    answer = warehouse.query_columns(
        f"SELECT {', '.join(asked)} {source} ORDER BY bucket LIMIT {most} {SIDE_BY_SIDE}", parameters
    )
    if not answer:
        return nothing(ways)
    if len(answer["c_at"]) == most:
        return None
    at, of = merged(answer, answer["c_at"], aggregates)
    return {"at": at, **_made(ways, of)}


def nothing(ways: Mapping[str, Reading]) -> dict[str, Column]:
    """What there is of no rows."""
    return {name: np.empty(0, np.int64) for name in ("at", *ways)}


def _aggregates(ways: Mapping[str, Reading]) -> dict[str, Aggregate]:
    return {name: found for way in ways.values() for name, found in way.aggregates.items()}


def _made(ways: Mapping[str, Reading], of: Mapping[str, Column]) -> dict[str, Column]:
    return {name: way.value(of) for name, way in ways.items()}
