"""Measure the rules of one environment: read its matrices once, and compute all values from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from penstock.alerts.evaluation.conditions import MATRIX_TYPES, Values, Windows, compute_values
from penstock.alerts.evaluation.descriptions import describe_error_groups, describe_value
from penstock.alerts.evaluation.live_state import LiveQueue, NewErrorGroup
from penstock.alerts.evaluation.rule_evaluation import ENVIRONMENT, RuleMeasurement
from penstock.alerts.evaluation.selected_queues import QueueScopes, SelectedQueues
from penstock.alerts.evaluation.slo import slo_value
from penstock.alerts.evaluation.wait_measurements import (
    PERCENTILES,
    ShortWaits,
    WaitMeter,
    needs_percentiles,
    slo_limits_ms,
)
from penstock.alerts.rules.alert_rule import DeadLetterMeasure, RuleType
from penstock.alerts.rules.rule_types import CompleteRule
from penstock.model import Scope
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.matrix.matrix_queries import MatrixReader
from penstock.warehouse.matrix.queue_matrix import QueueMatrix, Subject
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.tiers import FINE, MINUTE

STEP_S = 60
LONG_STEP_S = 3600
LONGEST_SHORT_WINDOW_S = 2 * 3600
"""Longer windows are whole hours and come from the minute tier."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """The matrices of an environment at `end_s`, and the state of its queues now.

    Rules that measure the same share their values, and rules with the same scope their rows: a thousand rules
    cost little more than one.
    """

    end_s: int
    pipeline_lag_s: float
    matrices: Mapping[int, QueueMatrix]
    """By the length of a step."""
    live_queues: Mapping[str, LiveQueue]
    percentiles: Mapping[tuple[int, float], Mapping[Subject, Column]] = field(default_factory=dict)
    """By window in seconds and quantile."""
    short_waits: Mapping[float, ShortWaits] = field(default_factory=dict)
    """By limit in milliseconds."""
    _values: dict[tuple[object, ...], Values] = field(default_factory=dict)
    _scopes: QueueScopes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_scopes", QueueScopes(self.live_queues))

    def measure(self, rule: CompleteRule) -> RuleMeasurement:
        """Return the values of a rule for the queues in its scope."""
        if rule.rule.type is RuleType.PIPELINE_STALE:
            return _measurement(rule, [ENVIRONMENT], np.array([[self.pipeline_lag_s * 1000]]))
        if rule.rule.type is RuleType.DEAD_LETTERS and rule.measure is DeadLetterMeasure.COUNT:
            return self._measure_live(rule, lambda live: live.dead_letters)
        if rule.rule.type is RuleType.EXPIRES_SOON:
            hours, group = rule.rule.within_hours or 0.0, rule.rule.group
            return self._measure_live(rule, lambda live: live.count_expiring(hours, group))
        if rule.rule.type is RuleType.NEW_ERROR_GROUP:
            return self._measure_new_error_groups(rule)
        if rule.rule.type is RuleType.SLO:
            return self._measure_slo(rule)
        return self._measure_matrix(rule)

    def _measure_live(self, rule: CompleteRule, count: Callable[[LiveQueue], int]) -> RuleMeasurement:
        queues = self._scopes.select_live(rule.rule.queue)
        counts = [float(count(self.live_queues[queue])) for queue in queues]
        return _measurement(rule, queues, np.array(counts).reshape(len(queues), 1))

    def _measure_new_error_groups(self, rule: CompleteRule) -> RuleMeasurement:
        since_s = self.end_s - rule.window_s

        def new_groups(live: LiveQueue) -> list[NewErrorGroup]:
            return [group for group in live.new_error_groups if group.since_s > since_s]

        measured = self._measure_live(rule, lambda live: len(new_groups(live)))
        return replace(
            measured,
            describe=lambda row: describe_error_groups(new_groups(self.live_queues[measured.queues[row]])),
        )

    def _measure_slo(self, rule: CompleteRule) -> RuleMeasurement:
        limit_ms = (rule.rule.within_seconds or 0.0) * 1000
        waits = self.short_waits[limit_ms]
        key = (RuleType.SLO, limit_ms, rule.rule.objective, rule.min_samples)
        if key not in self._values:
            burn_rates = slo_value(waits.counts, rule.rule.objective or 0.0, rule.min_samples)
            self._values[key] = Values(burn_rates, np.zeros(burn_rates.shape, dtype=np.bool_), {})
        scope = self._scopes.select(rule.rule, (RuleType.SLO, limit_ms), waits.subjects)
        return _select_values(rule, scope, self._values[key])

    def _measure_matrix(self, rule: CompleteRule) -> RuleMeasurement:
        matrix = self.matrices[step_of(rule)]
        scope = self._scopes.select(rule.rule, matrix.step_s, matrix.subjects)
        return _select_values(rule, scope, self._all_values(rule, matrix))

    def _all_values(self, rule: CompleteRule, matrix: QueueMatrix) -> Values:
        settings = rule.rule
        key = (
            *(settings.type, rule.statistic, rule.window_s, rule.form, rule.measure, rule.min_samples),
            settings.min_observed_points,
        )
        if key not in self._values:
            windows = Windows(matrix, rule.window_s // matrix.step_s, 1)
            self._values[key] = compute_values(rule, windows, self._percentiles_of(rule, matrix))
        return self._values[key]

    def _percentiles_of(self, rule: CompleteRule, matrix: QueueMatrix) -> Column | None:
        """Return the percentile of each subject of the matrix, if the rule needs one."""
        if not needs_percentiles(rule) or rule.statistic is None:
            return None
        values = self.percentiles[rule.window_s, PERCENTILES[rule.statistic]]
        unknown = np.array([np.nan])
        return np.array([values.get(subject, unknown) for subject in matrix.subjects]).reshape(-1, 1)


def _select_values(rule: CompleteRule, scope: SelectedQueues, values: Values) -> RuleMeasurement:
    selected = values.select(scope.rows)
    return RuleMeasurement(scope.queues, selected, _describer(rule, selected.values))


def step_of(rule: CompleteRule) -> int:
    """Return the length of a step of the matrix that has the rule's window."""
    return STEP_S if rule.window_s <= LONGEST_SHORT_WINDOW_S else LONG_STEP_S


def _measurement(rule: CompleteRule, queues: Sequence[str], values: Column) -> RuleMeasurement:
    no_cells = np.zeros(values.shape, dtype=np.bool_)
    return RuleMeasurement(queues, Values(values, no_cells, {}), _describer(rule, values))


def _describer(rule: CompleteRule, values: Column) -> Callable[[int], str]:
    def describe(row: int) -> str:
        value = float(values[row, 0])
        return describe_value(rule, None if np.isnan(value) else value)

    return describe


class CachedMatrix(NamedTuple):
    """The matrix of the last evaluation. The key is its end, its number of steps, and its groups."""

    key: tuple[int, int, tuple[str, ...]]
    matrix: QueueMatrix


@dataclass(slots=True)
class EnvironmentMeter:
    """Reads the measurements of one environment; keeps the last gauges of its queues between evaluations."""

    warehouse: Warehouse
    scope: Scope
    _readers: dict[tuple[int, tuple[str, ...]], MatrixReader] = field(default_factory=dict)
    _waits: dict[tuple[str, ...], WaitMeter] = field(default_factory=dict)
    _matrices: dict[int, CachedMatrix] = field(default_factory=dict)

    def read(
        self,
        rules: Sequence[CompleteRule],
        end_s: int,
        pipeline_lag_s: float,
        live_queues: Mapping[str, LiveQueue],
    ) -> Measurements:
        """Read everything that the rules need, in a number of queries that does not grow with them."""
        groups = tuple(sorted({rule.rule.group for rule in rules if rule.rule.group}))
        matrices = self._read_matrices(rules, groups, end_s)
        percentiles: dict[tuple[int, float], Mapping[Subject, Column]] = {}
        short_waits: dict[float, ShortWaits] = {}
        if limits := slo_limits_ms(rules):
            short_waits = self._wait_meter(groups).short_waits(limits, end_s)
        if any(needs_percentiles(rule) for rule in rules):
            percentiles = dict(self._wait_meter(groups).percentiles(rules, end_s))
        return Measurements(end_s, pipeline_lag_s, matrices, live_queues, percentiles, short_waits)

    def _wait_meter(self, groups: tuple[str, ...]) -> WaitMeter:
        return self._waits.setdefault(groups, WaitMeter(self.warehouse, self.scope, groups))

    def _read_matrices(
        self, rules: Iterable[CompleteRule], groups: tuple[str, ...], end_s: int
    ) -> dict[int, QueueMatrix]:
        """Read one matrix of minutes and one of hours, as long as the longest windows need; or none."""
        longest: dict[int, int] = {}
        for rule in rules:
            if rule.rule.type in MATRIX_TYPES:
                step_s = step_of(rule)
                longest[step_s] = max(longest.get(step_s, 0), rule.window_s // step_s)
        return {step_s: self._read_matrix(step_s, steps, groups, end_s) for step_s, steps in longest.items()}

    def _read_matrix(self, step_s: int, steps: int, groups: tuple[str, ...], end_s: int) -> QueueMatrix:
        """Read a matrix, or return the last one if it ends at the same time: hours end at a full minute."""
        tier = FINE if step_s == STEP_S else MINUTE
        tier_end_s = end_s // tier.width_s * tier.width_s
        last = self._matrices.get(step_s)
        if last is not None and last.key == (tier_end_s, steps, groups):
            return last.matrix
        reader = self._readers.setdefault((step_s, groups), MatrixReader(self.warehouse, self.scope, groups))
        matrix = reader.read(tier, tier_end_s, step_s, steps)
        self._matrices[step_s] = CachedMatrix((tier_end_s, steps, groups), matrix)
        return matrix
