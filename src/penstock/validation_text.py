"""Say in plain words what is wrong with a value that pydantic refuses.

Settings, parameters of routes and options of commands share these words. They never show a regular
expression or a text of pydantic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TIME_RULE = "must be a time in ISO 8601, such as 2026-01-31T12:00:00Z"
_RULES = {
    "int_": "must be a whole number",
    "float_": "must be a number",
    "bool_": "must be true or false",
    "datetime_": TIME_RULE,
    "date_": TIME_RULE,
    "uuid_": "must be a UUID",
    "path_": "must be a path",
    "string_type": "must be text",
    "string_unicode": "must be text in UTF-8",
    "greater_than_equal": "must be {ge} or more",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be {le} or less",
    "less_than": "must be less than {lt}",
    "string_too_short": "must have at least {min_length} character(s)",
    "string_too_long": "must have at most {max_length} characters",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "missing": "is missing",
    "value_error": "{error}",
    "finite_number": "must be a finite number",
}
"""The words for each kind of error, by the start of pydantic's name for it; the first match counts."""
MAX_VALUE_LENGTH = 40


def describe_rule(error: Mapping[str, Any]) -> str:
    """Return the rule that a value breaks, such as `must be a whole number`, for one error of pydantic."""
    for kind, rule in _RULES.items():
        if error["type"].startswith(kind):
            limits = {name: _plain_number(limit) for name, limit in error.get("ctx", {}).items()}
            return rule.format(**limits).replace("character(s)", _characters(limits))
    return "is not valid"


def describe_refusal(name: str, error: Mapping[str, Any], rule: str | None = None) -> str:
    """Return a sentence that names the value, the rule that it breaks, and what it is instead."""
    rule = rule or describe_rule(error)
    if error["type"] == "missing":
        return f"{name} {rule}."
    value = repr(shorten(str(error["input"])))
    return f"{name} {value} {rule}." if rule == "is not valid" else f"{name} {rule}, not {value}."


def shorten(text: str) -> str:
    """Return the text as an error message shows it."""
    return text if len(text) <= MAX_VALUE_LENGTH else text[:MAX_VALUE_LENGTH] + "…"


def _plain_number(limit: object) -> object:
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def _characters(limits: Mapping[str, object]) -> str:
    return "character" if limits.get("min_length") == 1 else "characters"
