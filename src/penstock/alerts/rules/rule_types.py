"""The types of rules: their units, defaults and the fields that each one uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from penstock.alerts.evaluation.state_machine import Timing
from penstock.alerts.rules.alert_rule import (
    AlertRule,
    DeadLetterMeasure,
    Operator,
    RuleType,
    StalledForm,
    Statistic,
)


class Unit(StrEnum):
    """What a threshold counts."""

    MESSAGES = "messages"
    MILLISECONDS = "ms"
    SHARE = "share"
    """Between 0 and 1."""
    GROUPS = "error groups"
    FLAG = "flag"
    """The rule has no threshold: its condition holds or not."""
    BURN_RATE = "burn rate"


GAUGE_STATISTICS = frozenset({Statistic.MIN, Statistic.MAX, Statistic.AVG, Statistic.LAST})
WAIT_STATISTICS = frozenset({Statistic.AVG, Statistic.MAX, Statistic.P50, Statistic.P95, Statistic.P99})


@dataclass(frozen=True, slots=True)
class TypeDescription:
    """One type of rule. `threshold` None means that a rule must give one; `fields` are those of its own."""

    unit: Unit
    help: str
    threshold: float | None = None
    operator: Operator = Operator.GREATER_THAN
    operators: frozenset[Operator] = frozenset({Operator.GREATER_THAN})
    statistics: frozenset[Statistic] = frozenset()
    window_minutes: int = 5
    min_samples: int | None = None
    fields: frozenset[str] = field(default_factory=frozenset)
    needs_live_state: bool = False
    """It reads PostgreSQL or Redis, which keep no history: it cannot be backtested."""


BOTH_OPERATORS = frozenset(Operator)

TYPES: dict[RuleType, TypeDescription] = {
    RuleType.BACKLOG: TypeDescription(
        Unit.MESSAGES,
        "Messages wait, for the whole window.",
        None,
        operators=BOTH_OPERATORS,
        statistics=GAUGE_STATISTICS,
    ),
    RuleType.LATENCY: TypeDescription(
        Unit.MILLISECONDS,
        "The time from ready to delivered. While nothing is delivered and messages wait, the oldest age.",
        None,
        operators=BOTH_OPERATORS,
        statistics=WAIT_STATISTICS,
        min_samples=1,
    ),
    RuleType.ERROR_RATE: TypeDescription(
        Unit.SHARE, "The share of finished attempts that failed.", None, min_samples=10
    ),
    RuleType.OLDEST_AGE: TypeDescription(
        Unit.MILLISECONDS, "The age of the oldest message that is ready for delivery.", None
    ),
    RuleType.DEAD_LETTERS: TypeDescription(
        Unit.MESSAGES,
        "Dead letters: how many there are, or how many came in the window.",
        0.0,
        fields=frozenset({"measure"}),
    ),
    RuleType.NEW_ERROR_GROUP: TypeDescription(
        Unit.GROUPS,
        "Dead letters with an error that is new, or back after it was resolved or ignored.",
        0.0,
        window_minutes=60,
        needs_live_state=True,
    ),
    RuleType.SATURATION: TypeDescription(
        Unit.SHARE, "The queue runs at its concurrency limit for the whole window.", 1.0
    ),
    RuleType.TIME_TO_DRAIN: TypeDescription(
        Unit.MILLISECONDS,
        "The time until the backlog is gone at the pace of the window.",
        None,
        window_minutes=15,
    ),
    RuleType.EXPIRES_SOON: TypeDescription(
        Unit.MESSAGES,
        "Messages that will expire unread within `withinHours`.",
        0.0,
        fields=frozenset({"within_hours"}),
        needs_live_state=True,
    ),
    RuleType.STALLED: TypeDescription(
        Unit.FLAG,
        "Work waits and nothing starts, or work is running and nothing completes.",
        0.5,
        window_minutes=10,
        fields=frozenset({"form"}),
    ),
    RuleType.CAPACITY_LOSS: TypeDescription(
        Unit.SHARE,
        "Running work stays below this share of the limit while work waits.",
        0.5,
        operator=Operator.LESS_THAN,
        operators=frozenset({Operator.LESS_THAN}),
        window_minutes=10,
    ),
    RuleType.SLO: TypeDescription(
        Unit.BURN_RATE,
        "The error budget of an objective burns too fast.",
        1.0,
        min_samples=100,
        fields=frozenset({"objective", "within_seconds"}),
    ),
    RuleType.PIPELINE_STALE: TypeDescription(Unit.MILLISECONDS, "The metrics are behind.", 120_000.0),
}


@dataclass(frozen=True, slots=True)
class CompleteRule:
    """A rule with the defaults of its type filled in: what the evaluation works with."""

    rule: AlertRule
    unit: Unit
    operator: Operator
    threshold: float
    clear_threshold: float
    statistic: Statistic | None
    window_s: int
    min_samples: int
    form: StalledForm
    measure: DeadLetterMeasure
    timing: Timing


def complete_rule(rule: AlertRule) -> CompleteRule:
    """Fill in the defaults of a checked rule's type."""
    description = TYPES[rule.type]
    operator = rule.operator or description.operator
    threshold = description.threshold if rule.threshold is None else rule.threshold
    assert threshold is not None, f"{rule.type} needs a threshold"
    minutes = rule.window_minutes or description.window_minutes
    return CompleteRule(
        rule,
        description.unit,
        operator,
        threshold,
        threshold if rule.clear_threshold is None else rule.clear_threshold,
        rule.statistic or _default_statistic(rule.type, operator),
        minutes * 60,
        description.min_samples or 0 if rule.min_samples is None else rule.min_samples,
        rule.form or StalledForm.EITHER,
        rule.measure or DeadLetterMeasure.GROWTH,
        Timing(rule.for_minutes * 60, rule.keep_firing_for_minutes * 60),
    )


def _default_statistic(rule_type: RuleType, operator: Operator) -> Statistic | None:
    """A backlog must last for the whole window: one spike does not fire."""
    if rule_type is RuleType.BACKLOG:
        return Statistic.MIN if operator is Operator.GREATER_THAN else Statistic.MAX
    return Statistic.AVG if rule_type is RuleType.LATENCY else None
