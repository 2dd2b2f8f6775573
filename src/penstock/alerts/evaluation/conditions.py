"""The value of each type of rule, for all queues and for any number of window ends at once.

The evaluator computes one window end, a backtest thousands; both use these functions. A value is NaN where
the queue has none, such as the saturation of a queue without a limit: there the condition does not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from penstock.alerts.evaluation.state_machine import Verdict
from penstock.alerts.rules.alert_rule import Operator, RuleType, StalledForm, Statistic
from penstock.alerts.rules.rule_types import CompleteRule
from penstock.warehouse.matrix.queue_matrix import GaugeMatrix, QueueMatrix
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.series.readings import ABSENT

TOO_YOUNG = "the queue is younger than the window"
TOO_FEW_POINTS = "too few observed points in the window"


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a rule: a row per queue, a column per window end.

    `too_few_samples` marks values that neither fire nor clear. `unknown` maps a reason to the cells whose
    value is unknown.
    """

    values: Column
    too_few_samples: Column
    unknown: dict[str, Column]

    def select(self, rows: Column) -> Values:
        """Return the values of some queues."""
        unknown = {reason: cells[rows] for reason, cells in self.unknown.items()}
        return Values(self.values[rows], self.too_few_samples[rows], unknown)

    def window_end(self, column: int) -> Values:
        """Return the values of one window end, as the only column."""
        end = slice(column, column + 1)
        unknown = {reason: cells[:, end] for reason, cells in self.unknown.items()}
        return Values(self.values[:, end], self.too_few_samples[:, end], unknown)


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of a rule over a matrix: `length` steps each, ending at the last `ends` steps."""

    matrix: QueueMatrix
    length: int
    ends: int

    def count(self, name: str) -> Column:
        """Return the sum of a counter."""
        return _reduce(np.add, self.slide(self.matrix.sums[name]))

    def min(self, values: Column) -> Column:
        return _reduce(np.minimum, self.slide(values))

    def max(self, values: Column) -> Column:
        return _reduce(np.maximum, self.slide(values))

    def mean(self, values: Column) -> Column:
        return _reduce(np.add, self.slide(values)) / self.length

    def last(self, values: Column) -> Column:
        return values[:, values.shape[1] - self.ends :]

    def before(self, values: Column) -> Column:
        """Return the values at the first step of each window."""
        return self.slide(values)[..., 0]

    def end_times_s(self) -> Column:
        return self.matrix.step_ends_s[-self.ends :]

    def slide(self, values: Column) -> Column:
        """Return the values of each window, in one more dimension."""
        needed = values[:, values.shape[1] - self.ends - self.length + 1 :]
        return sliding_window_view(needed, self.length, axis=1)


def _reduce(function: np.ufunc, windows: Column) -> Column:
    """Reduce each window to one value."""
    values: Column = function.reduce(windows, axis=-1)
    return values


def compute_values(rule: CompleteRule, windows: Windows, percentiles: Column | None = None) -> Values:
    """Return the values of a rule for every subject of the matrix.

    `percentiles` are the waits of a latency rule whose statistic is a percentile.
    """
    if percentiles is None:
        values = _FUNCTIONS[rule.rule.type](rule, windows)
    else:
        values = np.where(np.isnan(percentiles), oldest_age_ms(windows), percentiles)
    samples = _count_samples(rule, windows)
    unknown = {}
    if rule.statistic in (Statistic.MIN, Statistic.AVG) and rule.rule.type is RuleType.BACKLOG:
        unknown[TOO_YOUNG] = windows.min(windows.matrix.gauges["depth"].last) == ABSENT
    if rule.rule.min_observed_points:
        observed = _reduce(np.add, windows.slide(windows.matrix.observed))
        unknown[TOO_FEW_POINTS] = observed < rule.rule.min_observed_points
    too_few = (samples < rule.min_samples) & (samples > 0)
    return Values(values, too_few, unknown)


REACHED_TYPES = frozenset({RuleType.SATURATION, RuleType.SLO})
"""Types that fire when the value reaches the threshold, not only above it."""


def is_breached(rule: CompleteRule, values: Column) -> Column:
    """Return where the condition holds."""
    with np.errstate(invalid="ignore"):
        if rule.operator is Operator.LESS_THAN:
            breached: Column = values < rule.threshold
        elif rule.rule.type in REACHED_TYPES:
            breached = values >= rule.threshold
        else:
            breached = values > rule.threshold
    return breached


def is_clear(rule: CompleteRule, values: Column) -> Column:
    """Return where a firing rule clears: the value is past the clear threshold, or there is none."""
    with np.errstate(invalid="ignore"):
        if rule.operator is Operator.LESS_THAN:
            past = values >= rule.clear_threshold
        elif rule.rule.type in REACHED_TYPES:
            past = values < rule.clear_threshold
        else:
            past = values <= rule.clear_threshold
    return (past & ~is_breached(rule, values)) | np.isnan(values)


def _known(values: Column) -> Column:
    return np.where(values == ABSENT, np.nan, values)


def _reduce_gauge(windows: Windows, gauge: GaugeMatrix, statistic: Statistic | None) -> Column:
    if statistic is Statistic.MAX:
        return _known(windows.max(gauge.max))
    if statistic is Statistic.LAST:
        return _known(windows.last(gauge.last))
    if statistic is Statistic.AVG:
        return _known(windows.mean(gauge.last))
    return _known(windows.min(gauge.min))


def _backlog(rule: CompleteRule, windows: Windows) -> Column:
    return _reduce_gauge(windows, windows.matrix.gauges["depth"], rule.statistic)


def _latency(rule: CompleteRule, windows: Windows) -> Column:
    """The wait of delivered messages. While nothing is delivered and messages wait: the oldest age."""
    count = windows.count("wait_ms_count")
    if rule.statistic is Statistic.MAX:
        wait = windows.max(windows.matrix.wait_ms_max).astype(float)
    else:
        wait = windows.count("wait_ms_sum") / np.maximum(count, 1)
    return np.where(count > 0, wait, oldest_age_ms(windows))


def oldest_age_ms(windows: Windows) -> Column:
    """The age of the oldest ready message at the end of each window; it grows while a queue is idle."""
    gauges = windows.matrix.gauges
    age, depth = windows.last(gauges["oldest_age_ms"].last), windows.last(gauges["depth"].last)
    seen_ms = windows.last(windows.matrix.seen_ms)
    elapsed = np.maximum(0, windows.end_times_s() * 1000 - seen_ms)
    return np.where((age > 0) & (depth > 0), age + elapsed, 0.0)


def _error_rate(rule: CompleteRule, windows: Windows) -> Column:
    failed = windows.count("nacked") + windows.count("dead")
    finished = failed + windows.count("acked")
    return np.where(finished > 0, failed / np.maximum(finished, 1), 0.0)


def _dead_letter_growth(rule: CompleteRule, windows: Windows) -> Column:
    return windows.count("dead").astype(float)


def _saturation(rule: CompleteRule, windows: Windows) -> Column:
    gauges = windows.matrix.gauges
    return windows.min(_share_of_limit(gauges["running"].max, gauges["limit"].last))


def _capacity(rule: CompleteRule, windows: Windows) -> Column:
    """The largest share of the limit that ran, while work waited in the whole window."""
    gauges = windows.matrix.gauges
    share = windows.max(_share_of_limit(gauges["running"].max, gauges["limit"].last))
    return np.where(windows.min(gauges["depth"].min) > 0, share, np.nan)


def _share_of_limit(running: Column, limit: Column) -> Column:
    return np.where((limit > 0) & (running != ABSENT), running / np.maximum(limit, 1), np.nan)


def _time_to_drain_ms(rule: CompleteRule, windows: Windows) -> Column:
    """The backlog divided by the pace at which it shrank; infinite if it did not shrink."""
    depth = windows.matrix.gauges["depth"]
    now, before = windows.last(depth.last), windows.before(depth.max)
    drained = np.where((now == ABSENT) | (before == ABSENT), 0, before - now)
    pace_per_ms = np.maximum(drained, 0) / (rule.window_s * 1000)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(now > 0, now / pace_per_ms, 0.0)


def _stalled(rule: CompleteRule, windows: Windows) -> Column:
    gauges = windows.matrix.gauges
    waits = (windows.min(gauges["depth"].min) > 0) & (oldest_age_ms(windows) > 0)
    nothing_starts = waits & (windows.count("dequeued") == 0)
    completed = [windows.count(name) for name in ("acked", "nacked", "dead", "released")]
    nothing_completes = (windows.min(gauges["running"].min) > 0) & ~np.any(completed, axis=0)
    stalled = {
        StalledForm.WAITING: nothing_starts,
        StalledForm.RUNNING: nothing_completes,
        StalledForm.EITHER: nothing_starts | nothing_completes,
    }
    return np.where(stalled[rule.form], 1.0, 0.0)


def _oldest_age(rule: CompleteRule, windows: Windows) -> Column:
    return oldest_age_ms(windows)


def _count_samples(rule: CompleteRule, windows: Windows) -> Column:
    """Finished attempts for an error rate, waits for a latency."""
    if rule.rule.type is RuleType.ERROR_RATE:
        return windows.count("nacked") + windows.count("dead") + windows.count("acked")
    if rule.rule.type is RuleType.LATENCY:
        return windows.count("wait_ms_count")
    return np.zeros((len(windows.matrix.subjects), windows.ends), dtype=np.int64)


_FUNCTIONS: dict[RuleType, Callable[[CompleteRule, Windows], Column]] = {
    RuleType.BACKLOG: _backlog,
    RuleType.LATENCY: _latency,
    RuleType.ERROR_RATE: _error_rate,
    RuleType.OLDEST_AGE: _oldest_age,
    RuleType.DEAD_LETTERS: _dead_letter_growth,
    RuleType.SATURATION: _saturation,
    RuleType.CAPACITY_LOSS: _capacity,
    RuleType.TIME_TO_DRAIN: _time_to_drain_ms,
    RuleType.STALLED: _stalled,
}
"""The types whose values come from the matrices alone."""

MATRIX_TYPES = frozenset(_FUNCTIONS)

VERDICTS = (Verdict.CLEAR, Verdict.BETWEEN, Verdict.BREACHED, Verdict.UNKNOWN)
"""The verdict of each code in the result of `judge`."""

CLEAR, BETWEEN, BREACHED, UNKNOWN = range(4)


def judge(rule: CompleteRule, values: Values) -> Column:
    """Return the code of the verdict for each value."""
    codes = np.full(values.values.shape, BETWEEN, dtype=np.int8)
    codes[is_clear(rule, values.values)] = CLEAR
    codes[is_breached(rule, values.values)] = BREACHED
    codes[values.too_few_samples] = BETWEEN
    for cells in values.unknown.values():
        codes[cells] = UNKNOWN
    return codes
