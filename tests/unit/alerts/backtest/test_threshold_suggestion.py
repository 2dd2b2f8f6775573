"""The threshold that would have paged at most a number of times."""

from __future__ import annotations

import pytest

from penstock.alerts.backtest.backtest_request import never_silenced
from penstock.alerts.backtest.simulation import count_notified
from penstock.alerts.backtest.threshold_suggestion import Suggestion, parse_rate, suggest_threshold
from penstock.alerts.rules.rule_check import parse_rule
from penstock.alerts.rules.rule_types import CompleteRule, complete_rule
from penstock.errors import InvalidRequest
from tests.unit.alerts.backtest.histories import backlog_rule, history

SPIKES = "1 1 500 1 1 900 1 1 300 1 1 2 1 1 7 1"


def suggest(rule: CompleteRule, values: str, max_notified: int) -> Suggestion | None:
    return suggest_threshold(rule, history(orders=values), max_notified, never_silenced)


@pytest.mark.parametrize(("max_notified", "threshold"), [(0, 900), (1, 500), (2, 300), (3, 7), (4, 2)])
def test_the_threshold_lets_the_worst_values_page(max_notified: int, threshold: float) -> None:
    suggestion = suggest(backlog_rule(cooldownMinutes=0), SPIKES, max_notified)
    assert suggestion is not None
    assert suggestion.rule.threshold == threshold
    assert count_notified(suggestion.incidents) == max_notified


def test_a_threshold_that_always_fires_is_no_suggestion() -> None:
    suggestion = suggest(backlog_rule(), "5 " * 40 + "9 9 " + "5 " * 40, 1)
    assert suggestion is not None
    assert suggestion.rule.threshold == 5


def test_a_suggestion_is_a_round_number_that_pages_no_more() -> None:
    suggestion = suggest(backlog_rule(cooldownMinutes=0), "1 1 123456 1 1 987654 1 1", 1)
    assert suggestion is not None
    assert suggestion.rule.threshold == 130_000


def test_the_clear_threshold_keeps_its_ratio() -> None:
    suggestion = suggest(backlog_rule(threshold=10, clearThreshold=5), SPIKES, 1)
    assert suggestion is not None
    assert suggestion.rule.clear_threshold == suggestion.rule.threshold / 2


def test_a_rule_below_its_threshold_is_searched_from_below() -> None:
    rule = complete_rule(
        parse_rule({"name": "capacity", "type": "CAPACITY_LOSS", "threshold": 0.9, "cooldownMinutes": 0})
    )
    suggestion = suggest(rule, "1 1 0.2 1 1 0.4 1 1 0.6 1 1 1", 1)
    assert suggestion is not None
    assert suggestion.rule.threshold == pytest.approx(0.4)


def test_no_threshold_is_high_enough_for_an_infinite_value() -> None:
    rule = complete_rule(parse_rule({"name": "drain", "type": "TIME_TO_DRAIN", "threshold": "1h"}))
    assert suggest(rule, "1 1 inf 1", 0) is None


def test_a_history_without_values_keeps_the_threshold() -> None:
    suggestion = suggest(backlog_rule(), "_ _ _", 0)
    assert suggestion is not None
    assert (suggestion.rule.threshold, suggestion.incidents) == (10, [])


@pytest.mark.parametrize(
    ("rate", "days", "pages"), [("1/week", 7, 1), ("1/week", 30, 4), ("3/day", 1, 3), ("1/week", 1, 0)]
)
def test_a_rate_allows_pages_in_a_period(rate: str, days: int, pages: int) -> None:
    assert parse_rate(rate, days * 86_400 - 60) == pages


@pytest.mark.parametrize("rate", ["1", "0/week", "1/year", "week", "-1/day"])
def test_a_wrong_rate_is_refused(rate: str) -> None:
    with pytest.raises(InvalidRequest, match="1/week"):
        parse_rate(rate, 86_400)
