from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.alerts.rules.alert_rule import RuleType
from penstock.alerts.rules.default_rules import DEFAULT_RULES
from penstock.alerts.rules.rule_check import parse_rule, rule_to_json
from penstock.alerts.rules.rule_types import TYPES, complete_rule
from penstock.errors import InvalidRequest

VALID: dict[RuleType, dict[str, Any]] = {
    **{rule_type: {"threshold": 1} for rule_type in RuleType},
    RuleType.ERROR_RATE: {"threshold": 0.5},
    RuleType.SLO: {"objective": 0.95, "withinSeconds": 30},
    RuleType.EXPIRES_SOON: {"withinHours": 4},
}


@pytest.mark.parametrize("rule_type", RuleType)
def test_every_type_has_a_valid_rule_with_complete_defaults(rule_type: RuleType) -> None:
    rule = parse_rule({"name": "test", "type": rule_type.value, **VALID[rule_type]})

    complete = complete_rule(rule)

    assert complete.window_s > 0
    assert complete.unit is TYPES[rule_type].unit
    assert parse_rule(rule_to_json(rule)) == rule


@pytest.mark.parametrize("rule", DEFAULT_RULES, ids=lambda rule: rule.name)
def test_default_rules_are_valid(rule: Any) -> None:
    assert parse_rule(msgspec.to_builtins(rule)) == rule


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("1.5 h", 5_400_000)]
)
def test_time_thresholds_may_be_written_as_times(text: str, milliseconds: float) -> None:
    assert parse_rule({"name": "x", "type": "LATENCY", "threshold": text}).threshold == milliseconds


BACKLOG = {"name": "x", "type": "BACKLOG", "threshold": 1}

INVALID: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "BACKLOG"}, "name", "name is missing."),
    ({"name": "x", "type": "BACKLG", "threshold": 1}, "type", "Did you mean BACKLOG?"),
    ({"name": "x", "type": "BACKLOG"}, "threshold", "BACKLOG needs a threshold (messages)."),
    ({"name": "x", "type": "BACKLOG", "threshold": "many"}, "threshold", "Use a number."),
    ({"name": "x", "type": "LATENCY", "threshold": "soon"}, "threshold", "a time such as 30s"),
    ({"name": "x", "type": "BACKLOG", "threshold": -1}, "threshold", "between 0 and"),
    ({"name": "x", "type": "BACKLOG", "threshold": True}, "threshold", "must be a number"),
    ({"name": "x", "type": "ERROR_RATE", "threshold": 5}, "threshold", "between 0 and 1"),
    ({**BACKLOG, "treshold": 2}, "treshold", "Did you mean threshold?"),
    (
        {**BACKLOG, "objective": 0.9},
        "objective",
        "BACKLOG has no objective.",
    ),
    (
        {"name": "test", "type": "NEW_ERROR_GROUP", "group": "g"},
        "group",
        "NEW_ERROR_GROUP measures whole queues. Leave group out.",
    ),
    (
        {"name": "test", "type": "DEAD_LETTERS", "measure": "count", "group": "g"},
        "group",
        "DEAD_LETTERS measures whole queues. Leave group out.",
    ),
    (
        {**BACKLOG, "statistic": "p95"},
        "statistic",
        "Allowed: avg, last, max, min",
    ),
    (
        {**BACKLOG, "type": "OLDEST_AGE", "operator": "LESS_THAN"},
        "operator",
        "GREATER_THAN",
    ),
    (
        {**BACKLOG, "clearThreshold": 2},
        "clearThreshold",
        "must be below",
    ),
    ({**BACKLOG, "windowMinutes": 0}, "windowMinutes", "between 1 and"),
    ({**BACKLOG, "windowMinutes": 150}, "windowMinutes", "whole hours"),
    (
        {**BACKLOG, "windowMinutes": "5"},
        "windowMinutes",
        "a whole number",
    ),
    (
        {**BACKLOG, "severity": "loud"},
        "severity",
        "'loud' does not exist",
    ),
    ({**BACKLOG, "channels": "ops"}, "channels", "must be a list"),
    ({**BACKLOG, "runbook": "wiki"}, "runbook", "http://"),
    ({"name": "a/b", "type": "BACKLOG", "threshold": 1}, "name", "without /"),
    ({"name": "x", "type": "SLO", "withinSeconds": 30}, "objective", "such as 0.95"),
    ({"name": "x", "type": "EXPIRES_SOON"}, "withinHours", "between 0 and 720"),
]


@pytest.mark.parametrize(("fields", "field", "text"), INVALID, ids=lambda value: str(value)[:50])
def test_an_invalid_rule_names_the_field_and_what_is_allowed(
    fields: dict[str, Any], field: str, text: str
) -> None:
    with pytest.raises(InvalidRequest) as error:
        parse_rule(fields)

    assert error.value.fields["field"] == field
    assert text in error.value.detail
