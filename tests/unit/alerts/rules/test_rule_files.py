from __future__ import annotations

import pytest

from penstock.alerts.rules.rule_files import compare_rules, format_rules, parse_rules
from penstock.errors import ConfigError

FILE = """
[[rule]]
name = "orders back up"
type = "BACKLOG"
queue = "orders*"
threshold = 1000
windowMinutes = 5
channels = ["ops"]

[[rule]]
name = "slow"
type = "LATENCY"
threshold = "30s"
statistic = "p95"
"""


def test_an_exported_file_applies_without_a_change() -> None:
    rules = parse_rules(FILE, "rules.toml")
    existing = [{"id": "1", "createdAt": "", "updatedAt": "", "status": None, **rule} for rule in rules]

    changes = compare_rules(parse_rules(format_rules(existing), "export"), existing)

    assert [change.action for change in changes] == ["same", "same"]


def test_differences_are_listed_by_field() -> None:
    rules = parse_rules(FILE, "rules.toml")
    existing = [{**rules[0], "threshold": 500.0}, {"name": "old", "type": "BACKLOG", "threshold": 1.0}]

    changes = compare_rules(rules, existing, delete_others=True)

    assert {change.name: change.action for change in changes} == {
        "old": "delete",
        "orders back up": "change",
        "slow": "create",
    }
    assert changes[1].fields == {"threshold": (500.0, 1000.0)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]", "is not valid TOML"),
        ("[[alert]]\nname = 'x'", "Rules are written as [[rule]]"),
        ("[[rule]]\nname = 'x'\ntype = 'BACKLOG'", "rule x: BACKLOG needs a threshold"),
        (FILE + FILE, "two rules are called 'orders back up'"),
        ("rule = true", "Rules are written as [[rule]]"),
        ("rule = ['x']", "Rules are written as [[rule]]"),
        ("rule = " + "[" * 5_000, "is nested too deeply"),
        (f"[[rule]]\nname = 'x'\ntype = 'BACKLOG'\nthreshold = 1{'0' * 400}", "between 0 and 10^15"),
        (f"[[rule]]\nname = 'x'\ntype = 'BACKLOG'\nthreshold = 1{'0' * 5_000}", "is not valid TOML"),
    ],
)
def test_an_invalid_file_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_rules(text, "rules.toml")

    assert message in error.value.detail
