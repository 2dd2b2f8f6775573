"""Lost events: no rule decides on a window in which events of the metrics are missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.alerts.rules.alert_rule import DeadLetterMeasure, RuleType
from penstock.alerts.rules.rule_types import TYPES, CompleteRule
from penstock.definitions import QUEUE
from penstock.errors import PenstockError
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.series.completeness import LossInterval, read_loss_intervals

LOST_EVENTS = "events of this window were lost"
SLO_WINDOW_S = 3600
"""An objective is unknown for this long after a loss, not for the three days of its longest window."""


@dataclass(frozen=True, slots=True)
class WindowLosses:
    """The losses that overlap the longest window of the rules. All windows end at `end_s`."""

    end_s: int
    intervals: Sequence[LossInterval] = ()
    unreadable: str | None = None
    """Why ClickHouse did not return the losses."""

    def unknown_reason(self, rule: CompleteRule) -> str | None:
        """Return why the rule cannot be decided; None if all events of its window were counted."""
        window_s = metrics_window_s(rule)
        if not window_s or self.unreadable is not None:
            return self.unreadable if window_s else None
        is_affected = any(lost.end_s >= self.end_s - window_s for lost in self.intervals)
        return LOST_EVENTS if is_affected else None


def metrics_window_s(rule: CompleteRule) -> int:
    """Return how much time of metrics a rule needs; 0 if it needs none."""
    if rule.rule.type is RuleType.PIPELINE_STALE or TYPES[rule.rule.type].needs_live_state:
        return 0
    if rule.rule.type is RuleType.DEAD_LETTERS and rule.measure is DeadLetterMeasure.COUNT:
        return 0
    return SLO_WINDOW_S if rule.rule.type is RuleType.SLO else rule.window_s


def read_window_losses(warehouse: Warehouse, rules: Iterable[CompleteRule], end_s: int) -> WindowLosses:
    """Read the losses of the rules' windows in one query; without a query if no rule needs metrics."""
    longest_s = max(map(metrics_window_s, rules), default=0)
    if not longest_s:
        return WindowLosses(end_s)
    try:
        return WindowLosses(end_s, read_loss_intervals(warehouse, QUEUE, end_s - longest_s, end_s))
    except PenstockError as error:
        return WindowLosses(end_s, unreadable=error.detail)
