"""Describe the value of a rule in one sentence, with the figures that decide."""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock.alerts.evaluation.live_state import NewErrorGroup
from penstock.alerts.rules.alert_rule import Operator, RuleType, StalledForm, Statistic
from penstock.alerts.rules.rule_types import CompleteRule, Unit

MAX_EXAMPLE_LENGTH = 200


def format_value(unit: Unit, value: float) -> str:
    """Format a value or threshold for people."""
    if unit is Unit.MILLISECONDS:
        return format_milliseconds(value)
    if unit is Unit.SHARE:
        return f"{value * 100:.3g} %"
    if unit is Unit.BURN_RATE:
        return f"{value:.3g}×"
    return f"{value:,.0f}" if value == round(value) else f"{value:,.2f}"


def format_milliseconds(milliseconds: float) -> str:
    """Format a time with its two largest units, such as `2 h 5 min`."""
    if math.isinf(milliseconds):
        return "for ever"
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1_000
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min" + (f" {rest_s} s" if rest_s else "")
    hours, rest_min = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h" + (f" {rest_min} min" if rest_min else "")
    return f"{hours // 24} d" + (f" {hours % 24} h" if hours % 24 else "")


def describe_value(rule: CompleteRule, value: float | None) -> str:
    """Return what a rule measured, without the queue's name."""
    if value is None:
        return "no value"
    text, limit = format_value(rule.unit, value), format_value(rule.unit, rule.threshold)
    window = format_milliseconds(rule.window_s * 1_000)
    relation = "below" if rule.operator is Operator.LESS_THAN else "above"
    threshold = f", {relation} {limit}"
    match rule.rule.type:
        case RuleType.BACKLOG:
            return f"{text} messages wait{_over_window(rule, window)}{threshold}"
        case RuleType.LATENCY:
            return f"messages wait {text} ({_statistic_name(rule)} over {window}){threshold}"
        case RuleType.ERROR_RATE:
            return f"{text} of attempts failed in {window}{threshold}"
        case RuleType.OLDEST_AGE:
            return f"the oldest message has waited {text}{threshold}"
        case RuleType.DEAD_LETTERS:
            return f"{text} dead letters {_dead_letter_window(rule, window)}{threshold}"
        case RuleType.NEW_ERROR_GROUP:
            return f"{text} new error groups in {window}"
        case RuleType.SATURATION:
            return f"running at {text} of the limit for {window}"
        case RuleType.TIME_TO_DRAIN:
            return f"at the pace of the last {window} the backlog lasts {text}{threshold}"
        case RuleType.EXPIRES_SOON:
            return f"{text} messages will expire within {rule.rule.within_hours or 0:g} h"
        case RuleType.STALLED:
            return _describe_stalled(rule, window)
        case RuleType.CAPACITY_LOSS:
            return f"only {text} of the limit runs while work waits for {window}{threshold}"
        case RuleType.SLO:
            return f"the error budget burns at {text} of the rate that fires"
        case RuleType.PIPELINE_STALE:
            return f"metrics are behind by {text}{threshold}"


def describe_error_groups(groups: Sequence[NewErrorGroup]) -> str:
    """Return the pattern and an example of the latest error group, and how many more there are."""
    if not groups:
        return "no new error"
    latest, others = groups[0], len(groups) - 1
    origin = f"error is back after it was {latest.returned_from}" if latest.returned_from else "new error"
    text = f"{origin}: {latest.pattern or 'no error text'}"
    example = _example_line(latest.example)
    if example and example != latest.pattern:
        text += f" (for example: {example})"
    return text if not others else f"{text}, and {others:,} more"


def _example_line(error: str) -> str:
    """Return the line of an error that says what happened: the last one of a traceback, else the first."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    if not lines:
        return ""
    return (lines[-1] if lines[0].startswith("Traceback") else lines[0])[:MAX_EXAMPLE_LENGTH]


def _over_window(rule: CompleteRule, window: str) -> str:
    if rule.statistic is Statistic.MIN:
        return f" for {window}"
    return "" if rule.statistic is Statistic.LAST else f" ({_statistic_name(rule)} of {window})"


def _statistic_name(rule: CompleteRule) -> str:
    names = {Statistic.AVG: "mean", Statistic.MAX: "maximum", Statistic.MIN: "minimum"}
    return names.get(rule.statistic, str(rule.statistic)) if rule.statistic else "mean"


def _dead_letter_window(rule: CompleteRule, window: str) -> str:
    return "in all" if rule.measure == "count" else f"in {window}"


def _describe_stalled(rule: CompleteRule, window: str) -> str:
    forms = {
        StalledForm.WAITING: f"work waits and nothing started in {window}",
        StalledForm.RUNNING: f"work runs and nothing completed in {window}",
    }
    return forms.get(rule.form, f"nothing started or completed in {window} while there is work")
