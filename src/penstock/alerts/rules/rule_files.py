"""Alert rules in TOML files: parse, compare with the rules of an environment, and write.

A file has one table `[[rule]]` per rule, with the field names of the JSON.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tomli_w

from penstock.alerts.rules.rule_check import parse_rule, rule_to_json
from penstock.errors import ConfigError, InvalidRequest

SERVER_FIELDS = ("id", "createdAt", "updatedAt", "status")
"""Fields that the API adds to a rule."""

RuleFields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RuleChange:
    """The difference between a rule in a file and the rule of the same name that exists."""

    name: str
    action: str
    """`create`, `change`, `delete` or `same`."""
    fields: Mapping[str, tuple[Any, Any]]
    """Changed fields: the value that exists and the value of the file; None: the default."""
    rule: RuleFields


def parse_rules(text: str, source: str) -> list[RuleFields]:
    """Return the checked rules of a TOML file, in the form of the JSON. Raises ConfigError."""
    try:
        document = tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(f"{source} is not valid TOML: {error}.") from None
    except RecursionError:
        raise ConfigError(f"{source} is nested too deeply. Rules are written as [[rule]].") from None
    unknown = sorted(document.keys() - {"rule"})
    if unknown:
        raise ConfigError(f"{source}: unknown table {unknown[0]!r}. Rules are written as [[rule]].")
    tables = document.get("rule", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"{source}: `rule` is not a list of tables. Rules are written as [[rule]].")
    rules: list[RuleFields] = []
    for number, fields in enumerate(tables, start=1):
        try:
            rules.append(rule_to_json(parse_rule(fields)))
        except InvalidRequest as error:
            name = fields.get("name", f"number {number}")
            raise ConfigError(f"{source}, rule {name}: {error.detail}") from None
    names = [rule["name"] for rule in rules]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{source}: two rules are called {name!r}. Give each its own name.")
    return rules


def compare_rules(
    wanted: Sequence[RuleFields], existing: Iterable[RuleFields], *, delete_others: bool = False
) -> list[RuleChange]:
    """Return one change per rule, by name. Rules that the file does not have stay, unless `delete_others`."""
    current = {rule["name"]: strip_server_fields(rule) for rule in existing}
    changes = []
    for rule in wanted:
        name = rule["name"]
        if name not in current:
            changes.append(
                RuleChange(name, "create", {key: (None, value) for key, value in rule.items()}, rule)
            )
            continue
        old = current[name]
        fields = {
            key: (old.get(key), rule.get(key))
            for key in sorted({*old, *rule})
            if old.get(key) != rule.get(key)
        }
        changes.append(RuleChange(name, "change" if fields else "same", fields, rule))
    if delete_others:
        kept = {rule["name"] for rule in wanted}
        changes += [
            RuleChange(name, "delete", {}, rule) for name, rule in current.items() if name not in kept
        ]
    return sorted(changes, key=lambda change: change.name)


def format_rules(rules: Iterable[RuleFields]) -> str:
    """Return the rules as TOML."""
    tables = [{key: _plain(value) for key, value in strip_server_fields(rule).items()} for rule in rules]
    return tomli_w.dumps({"rule": tables}) if tables else ""


def strip_server_fields(rule: RuleFields) -> dict[str, Any]:
    return {key: value for key, value in rule.items() if key not in SERVER_FIELDS}


def _plain(value: Any) -> Any:
    """Whole numbers are written without a fraction."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
