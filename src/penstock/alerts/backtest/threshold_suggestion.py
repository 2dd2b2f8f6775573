"""Suggest the threshold that would have paged at most a number of times.

The search starts at the worst value of the period, where nothing fires, and moves towards the values of every
day while the rule pages seldom enough. It does not start at the other end: a threshold that is breached all
the time pages only once, and that says nothing.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from penstock.alerts.backtest.backtest_request import SilenceCheck
from penstock.alerts.backtest.rule_history import RuleHistory
from penstock.alerts.backtest.simulation import SimulatedIncident, count_notified, simulate
from penstock.alerts.evaluation.conditions import REACHED_TYPES
from penstock.alerts.rules.alert_rule import Operator
from penstock.alerts.rules.rule_types import CompleteRule, Unit
from penstock.errors import InvalidRequest
from penstock.warehouse.series.native_format import Column

SCANNED_CANDIDATES = 48
"""Thresholds that are tried one after the other; between two of them the search is binary."""

MAX_FIRING_SHARE = 0.5
"""A threshold at which the rule fires most of the time is no suggestion, however seldom it pages."""

ROUNDED_DIGITS = 2

_RATE = re.compile(r"([1-9][0-9]{0,3})/(hour|day|week|month)")
_UNITS_S = {"hour": 3_600, "day": 86_400, "week": 7 * 86_400, "month": 30 * 86_400}
_ROUNDING_S = 120
"""A period of a week has whole minutes and may be this much shorter than a week."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The rule with the suggested threshold, and the incidents it would have caused."""

    rule: CompleteRule
    incidents: list[SimulatedIncident]


def parse_rate(text: str, period_s: float) -> int:
    """Return how many pages a rate such as `1/week` allows in a period."""
    matched = _RATE.fullmatch(text)
    if matched is None:
        raise InvalidRequest(
            f"atMost {text!r} is not valid. Use a number per hour, day, week or month, such as 1/week.",
            field="atMost",
        )
    return math.floor(int(matched[1]) * (period_s + _ROUNDING_S) / _UNITS_S[matched[2]])


def check_has_threshold(rule: CompleteRule) -> None:
    """Raise InvalidRequest if there is no threshold to suggest."""
    if rule.unit is Unit.FLAG:
        raise InvalidRequest(
            f"{rule.rule.type} has no threshold to suggest. Try another windowMinutes or forMinutes instead.",
            field="atMost",
        )


def suggest_threshold(
    rule: CompleteRule, history: RuleHistory, max_notified: int, is_silenced: SilenceCheck
) -> Suggestion | None:
    """Return the threshold nearest to the values of every day that pages at most `max_notified` times.

    None: no threshold does, for example because a backlog that does not shrink takes for ever to drain.
    """

    def attempt(threshold: float) -> Suggestion | None:
        changed = with_threshold(rule, threshold)
        incidents = simulate(changed, history, is_silenced, max_notified)
        is_rare = count_notified(incidents) <= max_notified
        is_short = _firing_s(incidents, history) <= MAX_FIRING_SHARE * (history.end_s - history.start_s)
        return Suggestion(changed, incidents) if is_rare and is_short else None

    nearest = _search(_candidates(rule, history.values.values), attempt)
    if nearest is None:
        return None
    return attempt(_round_outwards(rule, nearest.rule.threshold)) or nearest


def with_threshold(rule: CompleteRule, threshold: float) -> CompleteRule:
    """Return the rule with another threshold; the clear threshold keeps its ratio to the threshold."""
    ratio = rule.clear_threshold / rule.threshold if rule.threshold else 1.0
    return dataclasses.replace(rule, threshold=threshold, clear_threshold=threshold * ratio)


def _candidates(rule: CompleteRule, values: Column) -> Column:
    """Return the possible thresholds, from one that never fires to the values of every day."""
    known = np.unique(values[np.isfinite(values)])
    if not len(known):
        return np.array([rule.threshold])
    if rule.rule.type in REACHED_TYPES:
        known = np.append(known[1:], np.nextafter(known[-1], np.inf))
    if rule.unit is Unit.SHARE:
        known = known[known <= 1]
    return known if rule.operator is Operator.LESS_THAN else known[::-1]


def _search(candidates: Column, attempt: Callable[[float], Suggestion | None]) -> Suggestion | None:
    """Return the suggestion of the last candidate before the first one that pages too often."""
    scanned = np.unique(np.linspace(0, len(candidates) - 1, SCANNED_CANDIDATES).astype(np.int64)).tolist()
    allowed, best = -1, None
    refused = len(candidates)
    for position in scanned:
        suggestion = attempt(float(candidates[position]))
        if suggestion is None:
            refused = position
            break
        allowed, best = position, suggestion
    while refused - allowed > 1:
        middle = (allowed + refused) // 2
        suggestion = attempt(float(candidates[middle]))
        if suggestion is None:
            refused = middle
        else:
            allowed, best = middle, suggestion
    return best


def _firing_s(incidents: list[SimulatedIncident], history: RuleHistory) -> float:
    return sum((incident.resolved_s or history.end_s) - incident.opened_s for incident in incidents)


def _round_outwards(rule: CompleteRule, threshold: float) -> float:
    """Return a threshold that is easier to read and does not fire more often."""
    if threshold <= 0 or not math.isfinite(threshold):
        return threshold
    unit = 10.0 ** (math.floor(math.log10(threshold)) - ROUNDED_DIGITS + 1)
    if rule.unit in (Unit.MESSAGES, Unit.MILLISECONDS):
        unit = max(unit, 1.0)
    direction = math.floor if rule.operator is Operator.LESS_THAN else math.ceil
    rounded = round(direction(round(threshold / unit, 6)) * unit, 10)
    return min(rounded, 1.0) if rule.unit is Unit.SHARE else rounded
