"""Burn rates of an objective over a past period: sums of waits over windows, from cumulative sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.alerts.backtest.rule_history import EVALUATION_STEP_S, HistoryBuilder
from penstock.alerts.evaluation.conditions import Values
from penstock.alerts.evaluation.slo import HOUR_S, MINUTE_S, WINDOW_LENGTHS_S, WaitCounts, slo_value
from penstock.alerts.rules.queue_scope import in_scope
from penstock.alerts.rules.rule_types import CompleteRule
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.matrix.queue_matrix import Subject
from penstock.warehouse.matrix.wait_queries import StepGrid, read_short_waits
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.tiers import HOUR, MINUTE

LONGEST_FINE_WINDOW_S = 6 * HOUR_S
"""Longer windows come from the hour tier, as in the evaluator, and end at whole hours."""

COARSE_PERIOD_S = 2 * 24 * HOUR_S
COARSE_STEP_S = 5 * MINUTE_S
"""Above this period the waits are read in steps of 5 minutes: the merged digests are most of the cost."""

CHUNK_STEPS = 1440


@dataclass(frozen=True, slots=True)
class SloReader:
    """Reads the history of objectives in one environment."""

    warehouse: Warehouse
    parameters: Mapping[str, object]

    def read(self, rule: CompleteRule, builder: HistoryBuilder) -> None:
        """Add the values of an SLO rule to a history, chunk by chunk."""
        is_long = builder.columns * EVALUATION_STEP_S > COARSE_PERIOD_S
        step_s = COARSE_STEP_S if is_long else MINUTE_S
        hold = step_s // EVALUATION_STEP_S
        total = -(-builder.columns // hold)
        for first in range(0, total, CHUNK_STEPS):
            ends_s = builder.start_s + step_s * np.arange(first, min(first + CHUNK_STEPS, total))
            subjects, values = self._read_values(rule, ends_s, step_s)
            no_cells = np.zeros(values.shape, dtype=np.bool_)
            queues = [subject.queue for subject in subjects]
            builder.add(first * hold, queues, Values(values, no_cells, {}), hold)

    def _read_values(self, rule: CompleteRule, ends_s: Column, step_s: int) -> tuple[list[Subject], Column]:
        limit_ms = (rule.rule.within_seconds or 0.0) * 1000
        fine = self._read_sums(limit_ms, ends_s, step_s)
        hour_ends_s = np.arange(ends_s[0] // HOUR_S * HOUR_S, ends_s[-1] + 1, HOUR_S)
        hours = self._read_sums(limit_ms, hour_ends_s, HOUR_S)
        hour_numbers = (ends_s - hour_ends_s[0]) // HOUR_S
        subjects = [
            subject
            for subject in sorted({*fine, *hours})
            if subject.group == (rule.rule.group or "") and in_scope(rule.rule.queue, subject.queue)
        ]
        values = [
            slo_value(
                {
                    length_s: _window_counts(fine.get(subject), len(ends_s), length_s // step_s)
                    if length_s <= LONGEST_FINE_WINDOW_S
                    else _at(
                        _window_counts(hours.get(subject), len(hour_ends_s), length_s // HOUR_S), hour_numbers
                    )
                    for length_s in WINDOW_LENGTHS_S
                },
                rule.rule.objective or 0.0,
                rule.min_samples,
            )
            for subject in subjects
        ]
        return subjects, np.array(values, dtype=float).reshape(len(subjects), len(ends_s))

    def _read_sums(self, limit_ms: float, ends_s: Column, step_s: int) -> dict[Subject, Column]:
        """Return per subject the cumulative sums of all waits and of the short ones, starting with 0."""
        longest_s = max(WINDOW_LENGTHS_S) if step_s == HOUR_S else LONGEST_FINE_WINDOW_S
        steps = len(ends_s) - 1 + longest_s // step_s
        tier = HOUR if step_s == HOUR_S else MINUTE
        counts = read_short_waits(
            self.warehouse, self.parameters, StepGrid(tier, int(ends_s[-1]), step_s, steps), [limit_ms]
        )
        return {
            subject: np.concatenate((np.zeros((2, 1)), np.cumsum(rows, axis=1)), axis=1)
            for subject, rows in counts.items()
        }


def _window_counts(sums: Column | None, ends: int, length: int) -> WaitCounts:
    """Return the waits of the windows of `length` steps that end at the last `ends` steps."""
    if sums is None:
        return WaitCounts(np.zeros(ends), np.zeros(ends))
    steps = sums.shape[1]
    windows = sums[:, steps - ends :] - sums[:, steps - ends - length : steps - length]
    return WaitCounts(windows[0], windows[1])


def _at(counts: WaitCounts, positions: Column) -> WaitCounts:
    return WaitCounts(counts.total[positions], counts.short[positions])
