"""What to test: a rule, a past period or incident, and how often it may page. Nothing here imports numpy."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

from penstock.alerts.rules.alert_rule import DeadLetterMeasure, RuleType
from penstock.alerts.rules.rule_types import TYPES, CompleteRule
from penstock.errors import InvalidRequest
from penstock.warehouse.series.window import parse_period_s

DEFAULT_PERIOD = "7d"

SilenceCheck = Callable[[str, float], bool]
"""Whether a queue is silenced at a time."""

BEFORE_S, AFTER_S = 3_600.0, 1_800.0
"""The time around an incident that is replayed; the time before it also has the rule's window and waits."""


def never_silenced(queue: str, now_s: float) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class PastIncident:
    """The times of an incident; `resolved_s` is None while it is open."""

    id: str
    rule_name: str
    opened_s: float
    resolved_s: float | None

    def replayed_period(self, rule: CompleteRule, now_s: float) -> tuple[float, float]:
        """Return the start and end of the time to replay."""
        before_s = BEFORE_S + rule.window_s + rule.timing.for_s
        end_s = now_s if self.resolved_s is None else min(now_s, self.resolved_s + AFTER_S)
        return self.opened_s - before_s, end_s


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestRequest:
    """A rule and the period to test it over. Metrics are stored up to `counted_until_s`; None: unknown."""

    rule: CompleteRule
    start_s: float
    end_s: float
    now_s: float
    counted_until_s: float | None = None
    live_queues: Container[str] = frozenset()
    at_most: str | None = None
    """The rate of pages for which a threshold is suggested, such as `1/week`."""
    past_incident: PastIncident | None = None
    is_silenced: SilenceCheck = never_silenced


def resolve_period(
    period: str | None, start_s: float | None, end_s: float | None, now_s: float
) -> tuple[float, float]:
    """Return the start and end of the requested period, 7 days until now by default."""
    until_s = now_s if end_s is None else min(end_s, now_s)
    if start_s is not None and period is not None:
        raise InvalidRequest("Send period or from, not both.", field="period")
    since_s = until_s - parse_period_s(period or DEFAULT_PERIOD) if start_s is None else start_s
    if since_s >= until_s:
        raise InvalidRequest("The period must start before its end, and in the past.", field="from")
    return since_s, until_s


def check_is_testable(rule: CompleteRule) -> None:
    """Raise InvalidRequest for rules that measure what no server keeps a history of."""
    name = rule.rule.type
    if name is RuleType.PIPELINE_STALE:
        raise InvalidRequest(
            f"{name} cannot be tested: how far the metrics were behind is not stored. Incidents of the rule "
            "show it from now on.",
            field="type",
        )
    if name is RuleType.DEAD_LETTERS and rule.measure is DeadLetterMeasure.COUNT:
        raise InvalidRequest(
            f'{name} with measure = "count" cannot be tested: the number of dead letters in the past is not '
            'stored. Test it with measure = "growth", the dead letters that came in the window.',
            field="measure",
        )
    if TYPES[name].needs_live_state:
        testable = {RuleType.NEW_ERROR_GROUP: "DEAD_LETTERS", RuleType.EXPIRES_SOON: "OLDEST_AGE"}
        advice = f" Test a rule of type {testable[name]} instead." if name in testable else ""
        raise InvalidRequest(
            f"{name} cannot be tested: it measures queues as they are now, and their past is not stored."
            f"{advice}",
            field="type",
        )
