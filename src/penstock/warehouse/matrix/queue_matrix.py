"""Matrices of queue metrics: a row per queue or consumer group, a column per time step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.warehouse.series.native_format import Column
from penstock.warehouse.series.readings import ABSENT

COUNTERS = ("enqueued", "dequeued", "acked", "nacked", "dead", "expired", "released")
GAUGES = ("depth", "running", "limit", "oldest_age_ms")
WAIT_SUMS = ("wait_ms_count", "wait_ms_sum")
SUMS = COUNTERS + WAIT_SUMS


class Subject(NamedTuple):
    """A queue as a whole (empty group), or one consumer group of it."""

    queue: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class GaugeMatrix:
    """A gauge of all subjects, carried forward. Unknown values are ABSENT."""

    min: Column
    max: Column
    last: Column


@dataclass(frozen=True, slots=True)
class QueueMatrix:
    """The values of subjects in consecutive steps, the last of which ends at `end_s`.

    Every array has a row per subject and a column per step. `observed` counts the 5-second buckets (of the
    minute tier: minutes) with an observation of a gauge; `seen_ms` is the time of the last observation, which
    may be before the step.
    """

    subjects: Sequence[Subject]
    end_s: int
    step_s: int
    sums: Mapping[str, Column]
    gauges: Mapping[str, GaugeMatrix]
    wait_ms_max: Column
    observed: Column
    seen_ms: Column

    @property
    def steps(self) -> int:
        return int(self.observed.shape[1])

    @property
    def step_ends_s(self) -> Column:
        """The end of each step, in seconds since the epoch."""
        return self.end_s - self.step_s * np.arange(self.steps - 1, -1, -1)

    def rows_of(self, group: str | None) -> Column:
        """Return the row numbers of whole queues, or of one group of each queue."""
        wanted = group or ""
        rows = [row for row, subject in enumerate(self.subjects) if subject.group == wanted]
        return np.array(rows, dtype=np.int64)


class LastGauges(NamedTuple):
    """The last gauges of a subject, and when they were observed. Unknown values are ABSENT."""

    values: tuple[int, ...]
    seen_ms: int


@dataclass(frozen=True, slots=True)
class StepRows:
    """Aggregated rows of a query, one per subject and step, in no order.

    `subjects` has the row number of each row's subject. `columns` has the sums, the maximum wait, and of each
    gauge `_min`, `_max` and `_last`, ABSENT if the step has no observation. It is empty if there are no rows.
    """

    subjects: Column
    steps: Column
    columns: Mapping[str, Column]


def build_matrix(
    subjects: Sequence[Subject],
    rows: StepRows,
    known_before: Mapping[Subject, LastGauges],
    *,
    end_s: int,
    step_s: int,
    steps: int,
) -> QueueMatrix:
    """Spread rows over a matrix and carry gauges forward, starting with `known_before` its first step."""
    shape = (len(subjects), steps)

    def spread(name: str, empty: int) -> Column:
        matrix = np.full(shape, empty, dtype=np.int64)
        if name in rows.columns:
            matrix[rows.subjects, rows.steps] = rows.columns[name]
        return matrix

    before = [known_before.get(subject) for subject in subjects]
    gauges = {}
    for number, name in enumerate(GAUGES):
        initial = np.array(
            [ABSENT if known is None else known.values[number] for known in before], dtype=np.int64
        )
        gauges[name] = _carry_gauge(
            spread(f"{name}_min", ABSENT),
            spread(f"{name}_max", ABSENT),
            spread(f"{name}_last", ABSENT),
            initial,
        )
    initial_seen = np.array([ABSENT if last is None else last.seen_ms for last in before], dtype=np.int64)
    seen_ms, _ = _fill_rows_forward(spread("seen_ms", ABSENT), initial_seen)
    return QueueMatrix(
        subjects,
        end_s,
        step_s,
        {name: spread(name, 0) for name in SUMS},
        gauges,
        spread("wait_ms_max", 0),
        spread("observed", 0),
        seen_ms,
    )


def _carry_gauge(low: Column, high: Column, last: Column, initial: Column) -> GaugeMatrix:
    """Return the gauge at every step. A step starts with the value that the step before it ended with."""
    carried_last, value_before = _fill_rows_forward(last, initial)
    is_observed = last != ABSENT
    carried_low = np.where(
        is_observed, np.where(value_before == ABSENT, low, np.minimum(low, value_before)), carried_last
    )
    carried_high = np.where(is_observed, np.maximum(high, value_before), carried_last)
    return GaugeMatrix(carried_low, carried_high, carried_last)


def _fill_rows_forward(values: Column, initial: Column) -> tuple[Column, Column]:
    """Replace absent values of each row with the last present one; also return the value before each step."""
    seeded = np.concatenate((initial[:, np.newaxis], values), axis=1)
    positions = np.where(seeded == ABSENT, 0, np.arange(seeded.shape[1]))
    newest = np.maximum.accumulate(positions, axis=1)
    filled = np.take_along_axis(seeded, newest, axis=1)
    return filled[:, 1:], filled[:, :-1]
