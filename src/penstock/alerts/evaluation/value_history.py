"""The value of a rule for one queue over the last hours, as its chart shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.alerts.evaluation.conditions import MATRIX_TYPES, Windows, compute_values
from penstock.alerts.evaluation.measurements import STEP_S, step_of
from penstock.alerts.evaluation.wait_measurements import needs_percentiles
from penstock.alerts.rules.alert_rule import DeadLetterMeasure, RuleType
from penstock.alerts.rules.rule_types import CompleteRule, Unit
from penstock.model import Scope
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.matrix.matrix_queries import MatrixReader
from penstock.warehouse.matrix.queue_matrix import Subject
from penstock.warehouse.tiers import FINE, MINUTE

SHORT_HISTORY_STEPS = 180
LONG_HISTORY_STEPS = 72
"""Steps of a chart: three hours of minutes, or three days of hours for windows of several hours."""


@dataclass(frozen=True, slots=True)
class ValueHistory:
    """Values at consecutive times. NaN: there is none."""

    times_s: Sequence[int]
    values: Sequence[float]


def has_history(rule: CompleteRule) -> bool:
    """Return whether the stored metrics have the values of the rule at earlier times, as numbers."""
    is_live = rule.rule.type is RuleType.DEAD_LETTERS and rule.measure is DeadLetterMeasure.COUNT
    is_in_matrix = rule.rule.type in MATRIX_TYPES and not needs_percentiles(rule) and not is_live
    return is_in_matrix and rule.unit is not Unit.FLAG


def read_history(
    warehouse: Warehouse, scope: Scope, rule: CompleteRule, queue: str, end_s: int
) -> ValueHistory | None:
    """Return the values of the rule up to `end_s`, computed as an evaluation does; None: there are none."""
    step_s = step_of(rule)
    tier, steps = (FINE, SHORT_HISTORY_STEPS) if step_s == STEP_S else (MINUTE, LONG_HISTORY_STEPS)
    length = rule.window_s // step_s
    group = rule.rule.group or ""
    reader = MatrixReader(warehouse, scope, [group] if group else [], [queue])
    matrix = reader.read(tier, end_s // tier.width_s * tier.width_s, step_s, steps + length - 1)
    subject = Subject(queue, group)
    if subject not in matrix.subjects:
        return None
    windows = Windows(matrix, length, steps)
    values = compute_values(rule, windows).values[list(matrix.subjects).index(subject)]
    return ValueHistory(windows.end_times_s().tolist(), values.tolist())
