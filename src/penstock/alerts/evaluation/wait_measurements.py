"""Measure waits of all queues: percentiles over windows, and short waits for objectives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.alerts.evaluation.slo import WINDOW_LENGTHS_S, WaitCounts
from penstock.alerts.rules.alert_rule import RuleType, Statistic
from penstock.alerts.rules.rule_types import CompleteRule
from penstock.model import Scope
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.matrix.queue_matrix import Subject
from penstock.warehouse.matrix.wait_queries import StepGrid, read_short_waits, read_window_percentiles
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.tiers import FINE, HOUR, MINUTE, Tier

GridCounts = Mapping[Subject, Column]
"""Waits per subject: a row for all waits and one per limit, a column per step."""

PERCENTILES = {Statistic.P50: 0.5, Statistic.P95: 0.95, Statistic.P99: 0.99}

_SLO_GRIDS: tuple[tuple[Tier, int, int, float], ...] = (
    (MINUTE, 300, 12, 0.0),
    (MINUTE, 1800, 12, 60.0),
    (HOUR, 3600, 72, 600.0),
)
"""Tier, length of a step, steps, and for how many seconds a result is used: long windows change slowly."""


def needs_percentiles(rule: CompleteRule) -> bool:
    return rule.rule.type is RuleType.LATENCY and rule.statistic in PERCENTILES


def slo_limits_ms(rules: Iterable[CompleteRule]) -> tuple[float, ...]:
    """Return the distinct limits of the rules' objectives, in milliseconds."""
    limits = {(rule.rule.within_seconds or 0.0) * 1000 for rule in rules if rule.rule.type is RuleType.SLO}
    return tuple(sorted(limits))


@dataclass(slots=True)
class WaitMeter:
    """Reads waits of one environment; keeps the results of long windows for a while."""

    warehouse: Warehouse
    scope: Scope
    groups: tuple[str, ...] = ()
    _cached: dict[int, tuple[float, tuple[float, ...], Mapping[Subject, Column]]] = field(
        default_factory=dict
    )

    @property
    def parameters(self) -> dict[str, object]:
        return {**self.scope._asdict(), "groups": list(self.groups)}

    def percentiles(
        self, rules: Iterable[CompleteRule], end_s: int
    ) -> dict[tuple[int, float], dict[Subject, Column]]:
        """Return by window in seconds and quantile: the percentile of each subject."""
        windows_s = sorted({rule.window_s for rule in rules if needs_percentiles(rule)})
        short = [length for length in windows_s if length <= 7200]
        result: dict[tuple[int, float], dict[Subject, Column]] = {}
        for tier, step_s, lengths in ((FINE, 60, short), (MINUTE, 3600, windows_s[len(short) :])):
            if lengths:
                steps = [length // step_s for length in lengths]
                end = end_s // tier.width_s * tier.width_s
                grid = StepGrid(tier, end, step_s, max(steps))
                percentiles = read_window_percentiles(self.warehouse, self.parameters, grid, steps, 1)
                for (length, level), values in percentiles.items():
                    result[length * step_s, level] = values
        return result

    def short_waits(
        self, limits_ms: Sequence[float], end_s: int
    ) -> dict[float, dict[Subject, dict[int, WaitCounts]]]:
        """Return by limit, subject and window length: all waits and the short ones."""
        grids = [self._read_grid(*grid, tuple(limits_ms), end_s) for grid in _SLO_GRIDS]
        subjects = {subject for grid in grids for subject in grid}
        return {
            limit: {subject: self._windows(grids, subject, number) for subject in subjects}
            for number, limit in enumerate(limits_ms, start=1)
        }

    def _read_grid(
        self, tier: Tier, step_s: int, steps: int, keep_s: float, limits_ms: tuple[float, ...], end_s: int
    ) -> GridCounts:
        read_s, limits, cached = self._cached.get(step_s, (0.0, (), {}))
        if limits == limits_ms and 0 <= end_s - read_s < keep_s:
            return cached
        grid = StepGrid(tier, end_s // tier.width_s * tier.width_s, step_s, steps)
        counts = read_short_waits(self.warehouse, self.parameters, grid, limits_ms)
        self._cached[step_s] = (float(end_s), limits_ms, counts)
        return counts

    @staticmethod
    def _windows(
        grids: Sequence[Mapping[Subject, Column]], subject: Subject, row: int
    ) -> dict[int, WaitCounts]:
        """Return the waits of each window: of the finest grid that is long enough."""
        windows = {}
        for length_s in WINDOW_LENGTHS_S:
            for (_, step_s, steps, _), grid in zip(_SLO_GRIDS, grids, strict=True):
                if step_s * steps >= length_s and length_s % step_s == 0:
                    counts = grid.get(subject)
                    last = slice(steps - length_s // step_s, None)
                    sums = [0.0, 0.0] if counts is None else counts[[0, row], last].sum(axis=1)
                    windows[length_s] = WaitCounts(np.array([sums[0]]), np.array([sums[1]]))
                    break
        return windows
