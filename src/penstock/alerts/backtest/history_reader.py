"""Read the history of a rule from the finest tier that covers the period, in chunks of bounded memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from penstock.alerts.backtest.rule_history import EVALUATION_STEP_S, HistoryBuilder, RuleHistory
from penstock.alerts.backtest.slo_history import SloReader
from penstock.alerts.evaluation.conditions import Windows, compute_values
from penstock.alerts.evaluation.lost_events import metrics_window_s
from penstock.alerts.evaluation.measurements import LONG_STEP_S, STEP_S, step_of
from penstock.alerts.evaluation.wait_measurements import PERCENTILES, needs_percentiles
from penstock.alerts.rules.alert_rule import RuleType
from penstock.alerts.rules.queue_scope import in_scope
from penstock.alerts.rules.rule_types import CompleteRule
from penstock.definitions import QUEUE
from penstock.model import Scope
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.matrix.matrix_queries import MatrixReader
from penstock.warehouse.matrix.queue_matrix import QueueMatrix
from penstock.warehouse.matrix.wait_queries import StepGrid, read_window_percentiles
from penstock.warehouse.series.completeness import read_loss_intervals
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.tiers import FINE, MINUTE, Tier

CHUNK_CELLS = 400_000
"""Subjects times steps of one matrix, which has about 25 arrays of 8 bytes per cell: 80 MB."""

FIRST_CHUNK_STEPS = 60
"""The first chunk is short: it shows how many queues there are."""

MAX_PERCENTILE_STEPS = 30
"""Digests that are merged per window. Longer windows have steps of several minutes."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The tier that a history comes from, and the time between two values. A value holds until the next."""

    tier: Tier
    step_s: int

    @property
    def hold(self) -> int:
        """Evaluations per value."""
        return self.step_s // EVALUATION_STEP_S


def choose_sampling(rule: CompleteRule, start_s: float, now_s: float) -> Sampling:
    """Return the finest sampling that covers the first window of the period."""
    if step_of(rule) == LONG_STEP_S:
        return Sampling(MINUTE, LONG_STEP_S)
    is_recent = now_s - (start_s - rule.window_s) <= FINE.retention_s
    return Sampling(FINE if is_recent else MINUTE, _percentile_step_s(rule))


def _percentile_step_s(rule: CompleteRule) -> int:
    if not needs_percentiles(rule) or rule.window_s <= MAX_PERCENTILE_STEPS * STEP_S:
        return STEP_S
    steps = range(STEP_S, rule.window_s // 10 + 1, STEP_S)
    return next(
        (
            step_s
            for step_s in steps
            if rule.window_s % step_s == 0 and rule.window_s // step_s <= MAX_PERCENTILE_STEPS
        ),
        STEP_S,
    )


@dataclass(frozen=True, slots=True)
class HistoryReader:
    """Reads histories of the rules of one environment."""

    warehouse: Warehouse
    scope: Scope
    live_queues: Container[str]
    """The queues that exist. Others count until their last observation."""

    def read(self, rule: CompleteRule, start_s: int, end_s: int, now_s: float) -> RuleHistory:
        """Return the values at `start_s` and every minute after it, up to `end_s`. Both are whole minutes."""
        columns = (end_s - start_s) // EVALUATION_STEP_S + 1
        builder = HistoryBuilder(start_s, columns)
        if rule.rule.type is RuleType.SLO:
            SloReader(self.warehouse, self._parameters(rule)).read(rule, builder)
        else:
            self._read_matrices(rule, choose_sampling(rule, start_s, now_s), builder)
        history = builder.build(self.live_queues)
        return dataclasses.replace(history, lost_columns=self._find_losses(rule, history))

    def _find_losses(self, rule: CompleteRule, history: RuleHistory) -> Column:
        """Return whether the window of each minute has lost events: the evaluator decides nothing then."""
        window_s = metrics_window_s(rule)
        ends_s = history.start_s + EVALUATION_STEP_S * np.arange(history.columns)
        has_loss = np.zeros(history.columns, dtype=np.bool_)
        for lost in read_loss_intervals(self.warehouse, QUEUE, history.start_s - window_s, history.end_s):
            has_loss |= (lost.start_s < ends_s) & (lost.end_s >= ends_s - window_s)
        return has_loss

    def _parameters(self, rule: CompleteRule) -> dict[str, object]:
        return {**self.scope._asdict(), "groups": [rule.rule.group] if rule.rule.group else []}

    def _read_matrices(self, rule: CompleteRule, sampling: Sampling, builder: HistoryBuilder) -> None:
        reader = MatrixReader(self.warehouse, self.scope, [rule.rule.group] if rule.rule.group else [])
        length = rule.window_s // sampling.step_s
        rule = _scale_observed_points(rule, sampling)
        for first, ends, matrix in _read_chunks(reader, sampling, length, builder):
            values = compute_values(
                rule, Windows(matrix, length, ends), self._percentiles(rule, sampling, matrix, ends)
            )
            rows = [
                row
                for row, subject in enumerate(matrix.subjects)
                if subject.group == (rule.rule.group or "") and in_scope(rule.rule.queue, subject.queue)
            ]
            queues = [matrix.subjects[row].queue for row in rows]
            builder.add(first, queues, values.select(np.array(rows, dtype=np.int64)), sampling.hold)
            builder.record_last_seen(queues, (matrix.seen_ms[rows, -1] / 1000).tolist())

    def _percentiles(
        self, rule: CompleteRule, sampling: Sampling, matrix: QueueMatrix, ends: int
    ) -> Column | None:
        """Return the percentile of each subject and window. Minutes have the same waits in fewer digests."""
        if not needs_percentiles(rule) or rule.statistic is None:
            return None
        length = rule.window_s // sampling.step_s
        grid = StepGrid(MINUTE, matrix.end_s, sampling.step_s, matrix.steps)
        percentiles = read_window_percentiles(self.warehouse, self._parameters(rule), grid, [length], ends)[
            length, PERCENTILES[rule.statistic]
        ]
        no_waits = np.full(ends, np.nan)
        rows = [percentiles.get(subject, no_waits) for subject in matrix.subjects]
        return np.array(rows, dtype=float).reshape(len(rows), ends)


def _read_chunks(
    reader: MatrixReader, sampling: Sampling, length: int, builder: HistoryBuilder
) -> Iterator[tuple[int, int, QueueMatrix]]:
    """Read the matrices of a period. Yields the column of the first window end, their number, the matrix."""
    total = math.ceil(builder.columns / sampling.hold)
    first, ends = 0, FIRST_CHUNK_STEPS
    while first < total:
        ends = min(ends, total - first)
        end_s = builder.start_s + (first + ends - 1) * sampling.step_s
        matrix = reader.read(sampling.tier, end_s, sampling.step_s, ends + length - 1)
        yield first * sampling.hold, ends, matrix
        first += ends
        ends = max(FIRST_CHUNK_STEPS, CHUNK_CELLS // max(1, len(matrix.subjects)) - length)


def _scale_observed_points(rule: CompleteRule, sampling: Sampling) -> CompleteRule:
    """Return the rule with `minObservedPoints` in points of the tier, which the evaluator counts in 5 s."""
    if sampling.tier is FINE or step_of(rule) == LONG_STEP_S:
        return rule
    points = math.ceil(rule.rule.min_observed_points * FINE.width_s / MINUTE.width_s)
    return dataclasses.replace(rule, rule=msgspec.structs.replace(rule.rule, min_observed_points=points))
