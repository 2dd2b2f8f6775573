"""Percentiles of waits over windows, and the share of waits that were short enough, of all queues at once.

Digests are merged in ClickHouse: percentiles of a window do not follow from percentiles of its steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.matrix.matrix_queries import SUBJECT_GROUP, queue_rows
from penstock.warehouse.matrix.queue_matrix import Subject
from penstock.warehouse.schema import QUANTILE_FUNCTION, QUANTILES
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.tiers import Tier

LEVELS = (
    *(round(number / 200, 4) for number in range(1, 199)),
    *(round(0.99 + number / 1000, 4) for number in range(1, 10)),
    *(0.9995, 0.9999, 1.0),
)
"""The shares at which a distribution of waits is read: every half per cent, and finer near 1."""


@dataclass(frozen=True, slots=True)
class StepGrid:
    """Consecutive steps of `step_s` seconds, the last of which ends at `end_s`."""

    tier: Tier
    end_s: int
    step_s: int
    steps: int

    @property
    def step_number(self) -> str:
        """SQL of the number of a bucket's step."""
        return (
            f"toInt64({self.steps} - 1 - intDiv({self.end_s} - 1 - toUnixTimestamp(bucket), {self.step_s}))"
        )


def read_window_percentiles(
    warehouse: Warehouse,
    parameters: Mapping[str, object],
    grid: StepGrid,
    window_steps: Sequence[int],
    ends: int,
) -> dict[tuple[int, float], dict[Subject, Column]]:
    """Return the percentiles of the windows that end at the last `ends` steps, in one query.

    The keys are the length of a window and the quantile; the values map a subject to one number per window
    end, NaN without samples.
    """
    windows = " UNION ALL ".join(
        f"SELECT {length} AS length, queue, subject_group, arrayJoin(range("
        f"toUInt64(greatest({grid.step_number}, {grid.steps - ends})), "
        f"toUInt64(least({grid.step_number} + {length}, {grid.steps})))) AS window_end, wait_ms_digest "
        f"FROM ({_wait_rows(grid, length + ends - 1)})"
        for length in sorted(set(window_steps))
    )
    rows = warehouse.query(
        f"SELECT length, queue, subject_group, window_end, "
        f"{_merge(QUANTILE_FUNCTION)}(wait_ms_digest) AS waits "
        f"FROM ({windows}) GROUP BY length, queue, subject_group, window_end",
        parameters,
    )
    result: dict[tuple[int, float], dict[Subject, Column]] = {
        (length, quantile): {} for length in window_steps for quantile in QUANTILES
    }
    for row in rows:
        subject = Subject(str(row["queue"]), str(row["subject_group"]))
        for quantile, wait_ms in zip(QUANTILES, row["waits"], strict=True):
            values = result[row["length"], quantile].setdefault(subject, np.full(ends, np.nan))
            values[row["window_end"] - (grid.steps - ends)] = wait_ms
    return result


def read_short_waits(
    warehouse: Warehouse, parameters: Mapping[str, object], grid: StepGrid, limits_ms: Sequence[float]
) -> dict[Subject, Column]:
    """Return per subject and step how many waits there were, and how many were at most each of the limits.

    The array of a subject has a row for all waits and one per limit, and a column per step. The counts come
    from digests: their error is below a half per cent, and smaller near 100 %.
    """
    levels = ", ".join(map(str, LEVELS))
    shares = ", ".join(
        f"samples * arrayMax(arrayConcat([0.], arrayFilter((level, wait) -> wait <= {float(limit)}, "
        f"[{levels}], waits))) AS short_{number}"
        for number, limit in enumerate(limits_ms)
    )
    rows = warehouse.query(
        f"SELECT queue, subject_group, step, toFloat64(samples) AS total, {shares} FROM ("
        f"SELECT queue, subject_group, {grid.step_number} AS step, sum(wait_ms_count) AS samples, "
        f"quantilesTDigestArrayMerge({levels})(wait_ms_digest) AS waits "
        f"FROM ({_wait_rows(grid, grid.steps)}) GROUP BY queue, subject_group, step)",
        parameters,
    )
    names = ("total", *(f"short_{number}" for number in range(len(limits_ms))))
    result: dict[Subject, Column] = {}
    for row in rows:
        subject = Subject(str(row["queue"]), str(row["subject_group"]))
        counts = result.setdefault(subject, np.zeros((len(names), grid.steps)))
        counts[:, row["step"]] = [row[name] for name in names]
    return result


def _wait_rows(grid: StepGrid, steps: int) -> str:
    """SQL of the rows with waits of the last steps of a grid."""
    start_s = grid.end_s - steps * grid.step_s
    return (
        f"SELECT *, {SUBJECT_GROUP} AS subject_group FROM {queue_rows(grid.tier, start_s, grid.end_s)} "
        f"AND wait_ms_count > 0"
    )


def _merge(function: str) -> str:
    name, bracket, levels = function.partition("(")
    return f"{name}Merge{bracket}{levels}"
