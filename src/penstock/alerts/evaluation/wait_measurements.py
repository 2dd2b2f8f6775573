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


_PERCENTILE_GRIDS: tuple[tuple[Tier, int, int, float], ...] = (
    (FINE, 60, 600, 5.0),
    (MINUTE, 60, 7200, 60.0),
    (MINUTE, 3600, 72 * 3600, 300.0),
)
"""Tier, length of a step, longest window, and for how many seconds a result is used.

Windows of more than ten minutes end at the last full minute: merging digests of 5 seconds would take twelve
times as long."""


def needs_percentiles(rule: CompleteRule) -> bool:
    return rule.rule.type is RuleType.LATENCY and rule.statistic in PERCENTILES


def slo_limits_ms(rules: Iterable[CompleteRule]) -> tuple[float, ...]:
    """Return the distinct limits of the rules' objectives, in milliseconds."""
    limits = {(rule.rule.within_seconds or 0.0) * 1000 for rule in rules if rule.rule.type is RuleType.SLO}
    return tuple(sorted(limits))


@dataclass(frozen=True, slots=True)
class ShortWaits:
    """The waits of subjects in the windows of an objective: a row per subject, one column."""

    subjects: Sequence[Subject]
    counts: Mapping[int, WaitCounts]
    """By the length of a window in seconds."""


@dataclass(slots=True)
class WaitMeter:
    """Reads waits of one environment; keeps the results of long windows for a while."""

    warehouse: Warehouse
    scope: Scope
    groups: tuple[str, ...] = ()
    _cached: dict[int, tuple[float, tuple[float, ...], Mapping[Subject, Column]]] = field(
        default_factory=dict
    )

    _cached_percentiles: dict[
        tuple[Tier, int], tuple[int, tuple[int, ...], Mapping[tuple[int, float], GridCounts]]
    ] = field(default_factory=dict)

    @property
    def parameters(self) -> dict[str, object]:
        return {**self.scope._asdict(), "groups": list(self.groups)}

    def percentiles(self, rules: Iterable[CompleteRule], end_s: int) -> dict[tuple[int, float], GridCounts]:
        """Return by window in seconds and quantile: the percentile of each subject."""
        windows_s = sorted({rule.window_s for rule in rules if needs_percentiles(rule)})
        result: dict[tuple[int, float], GridCounts] = {}
        shorter_s = 0
        for tier, step_s, longest_s, keep_s in _PERCENTILE_GRIDS:
            lengths = tuple(length for length in windows_s if shorter_s < length <= longest_s)
            shorter_s = longest_s
            if lengths:
                end = end_s // tier.width_s * tier.width_s
                result |= self._read_percentiles(tier, step_s, lengths, end, keep_s)
        return result

    def _read_percentiles(
        self, tier: Tier, step_s: int, lengths: tuple[int, ...], end_s: int, keep_s: float
    ) -> Mapping[tuple[int, float], GridCounts]:
        """Return the percentiles of windows of these lengths, read now or at most `keep_s` ago."""
        read_s, cached_lengths, cached = self._cached_percentiles.get((tier, step_s), (0, (), {}))
        if cached_lengths == lengths and 0 <= end_s - read_s < keep_s:
            return cached
        steps = [length // step_s for length in lengths]
        grid = StepGrid(tier, end_s, step_s, max(steps))
        percentiles = read_window_percentiles(self.warehouse, self.parameters, grid, steps, 1)
        by_seconds = {(length * step_s, level): values for (length, level), values in percentiles.items()}
        self._cached_percentiles[tier, step_s] = (end_s, lengths, by_seconds)
        return by_seconds

    def short_waits(self, limits_ms: Sequence[float], end_s: int) -> dict[float, ShortWaits]:
        """Return by limit: all waits and the short ones, of all subjects."""
        grids = [self._read_grid(*grid, tuple(limits_ms), end_s) for grid in _SLO_GRIDS]
        subjects = sorted({subject for grid in grids for subject in grid})
        sums = _sum_windows(grids, subjects, 1 + len(limits_ms))
        return {
            limit: ShortWaits(
                subjects,
                {length_s: WaitCounts(waits[:, [0]], waits[:, [number]]) for length_s, waits in sums.items()},
            )
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


def _sum_windows(grids: Sequence[GridCounts], subjects: Sequence[Subject], rows: int) -> dict[int, Column]:
    """Return by window length the sums of each subject, from the finest grid that is long enough."""
    sums = {}
    for (_, step_s, steps, _), grid in zip(_SLO_GRIDS, grids, strict=True):
        lengths = [
            length_s
            for length_s in WINDOW_LENGTHS_S
            if length_s not in sums and length_s % step_s == 0 and length_s <= step_s * steps
        ]
        empty = np.zeros((rows, steps))
        counts = np.array([grid.get(subject, empty) for subject in subjects]).reshape(-1, rows, steps)
        for length_s in lengths:
            sums[length_s] = counts[:, :, steps - length_s // step_s :].sum(axis=2)
    return sums
