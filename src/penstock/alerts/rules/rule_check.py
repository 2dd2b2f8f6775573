"""Check rules as people write them, and convert them between JSON, TOML and objects."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.alerts.rules.alert_rule import AlertRule, DeadLetterMeasure, RuleType
from penstock.alerts.rules.rule_types import TYPES, TypeDescription, Unit
from penstock.body_error_text import describe_body_error
from penstock.errors import InvalidRequest

NAME_PATTERN = re.compile(r"[^\s/][^/\n]{0,99}")
MAX_QUEUE_LENGTH = 255
MAX_LABELS = 20
MAX_LABEL_LENGTH = 200
MAX_SHORT_WINDOW_MINUTES = 120
MAX_WINDOW_MINUTES = 3 * 24 * 60
MAX_MINUTES = 31 * 24 * 60.0
MAX_THRESHOLD = 1e15

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)\s*")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

RULE_FIELD_NAMES = {field.name: field.encode_name for field in msgspec.structs.fields(AlertRule)}
_OWN_FIELDS = frozenset(name for description in TYPES.values() for name in description.fields)
"""Fields that only some types use."""


def parse_rule(fields: Mapping[str, Any]) -> AlertRule:
    """Convert and check a rule. Raises InvalidRequest that names the field and what is allowed."""
    for name in fields:
        if name not in RULE_FIELD_NAMES.values():
            raise InvalidRequest(f"Unknown field {name!r}{_suggest(name)}", field=name)
    for name in ("name", "type"):
        if name not in fields:
            raise InvalidRequest(f"{name} is missing.", field=name)
    converted = dict(fields)
    _convert_type(converted)
    unit = TYPES[RuleType(converted["type"])].unit
    for name in ("threshold", "clearThreshold"):
        converted[name] = _parse_threshold(name, converted.get(name), unit)
    try:
        rule = msgspec.convert(converted, AlertRule)
    except msgspec.ValidationError as error:
        message, field = describe_body_error(error)
        raise InvalidRequest(message, field=field) from None
    _check(rule, TYPES[rule.type])
    return rule


def rule_to_json(rule: AlertRule) -> dict[str, Any]:
    """Return all fields of a rule as they are written, without those at their defaults."""
    defaults = msgspec.to_builtins(AlertRule(name="", type=RuleType.BACKLOG))
    document: dict[str, Any] = msgspec.to_builtins(rule)
    return {
        name: value
        for name, value in document.items()
        if name in ("name", "type", "enabled") or value != defaults[name]
    }


def parse_duration_ms(text: str) -> float | None:
    """Return the milliseconds of a text such as `30s` or `4h`; None if it is none."""
    match = _DURATION.fullmatch(text)
    return None if match is None else float(match[1]) * _UNIT_MS[match[2]]


def _convert_type(fields: dict[str, Any]) -> None:
    value = fields["type"]
    known = [rule_type.value for rule_type in RuleType]
    if not isinstance(value, str) or value.upper() not in known:
        similar = difflib.get_close_matches(str(value).upper(), known, n=1)
        hint = f"Did you mean {similar[0]}?" if similar else f"Types are {', '.join(known)}."
        raise InvalidRequest(f"Type {value!r} does not exist. {hint}", field="type")
    fields["type"] = value.upper()


def _parse_threshold(name: str, value: Any, unit: Unit) -> float | None:
    if value is None:
        return None
    if isinstance(value, str):
        milliseconds = parse_duration_ms(value) if unit is Unit.MILLISECONDS else None
        if milliseconds is None:
            allowed = "milliseconds or a time such as 30s" if unit is Unit.MILLISECONDS else "a number"
            raise InvalidRequest(f"{name} {value!r} is not valid. Use {allowed}.", field=name)
        return milliseconds
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"{name} must be a number.", field=name)
    # `_check_threshold` refuses infinity; `float` would raise for a whole number of hundreds of digits.
    return float(value) if abs(value) < MAX_THRESHOLD else math.inf


def _check(rule: AlertRule, description: TypeDescription) -> None:
    if not NAME_PATTERN.fullmatch(rule.name):
        raise InvalidRequest("name must have 1 to 100 characters, without / and line breaks.", field="name")
    _check_fields_of_type(rule, description)
    _check_threshold(rule, description)
    _check_times(rule)
    _check_texts(rule)
    if rule.queue is not None and not 0 < len(rule.queue) <= MAX_QUEUE_LENGTH:
        raise InvalidRequest(
            f"queue must have 1 to {MAX_QUEUE_LENGTH} characters: a name, or a pattern with * and ?. "
            "Leave it out for all queues.",
            field="queue",
        )


def _check_fields_of_type(rule: AlertRule, description: TypeDescription) -> None:
    for name in _OWN_FIELDS - description.fields:
        if getattr(rule, name) is not None:
            raise InvalidRequest(
                f"{rule.type} has no {RULE_FIELD_NAMES[name]}.", field=RULE_FIELD_NAMES[name]
            )
    if rule.group is not None and _measures_whole_queues(rule):
        raise InvalidRequest(f"{rule.type} measures whole queues. Leave group out.", field="group")
    if rule.statistic is not None and rule.statistic not in description.statistics:
        allowed = ", ".join(sorted(description.statistics)) or "none"
        raise InvalidRequest(
            f"{rule.type} has no statistic {rule.statistic}. Allowed: {allowed}.", field="statistic"
        )
    if rule.operator is not None and rule.operator not in description.operators:
        allowed = ", ".join(sorted(description.operators))
        raise InvalidRequest(f"{rule.type} fires only with {allowed}.", field="operator")
    if rule.type is RuleType.SLO:
        if rule.objective is None or not 0 < rule.objective < 1:
            raise InvalidRequest("objective must be between 0 and 1, such as 0.95.", field="objective")
        if rule.within_seconds is None or not 0 < rule.within_seconds <= 86_400:
            raise InvalidRequest("withinSeconds must be between 0 and 86,400.", field="withinSeconds")
    if rule.type is RuleType.EXPIRES_SOON and (rule.within_hours is None or not 0 < rule.within_hours <= 720):
        raise InvalidRequest("withinHours must be between 0 and 720.", field="withinHours")


def _measures_whole_queues(rule: AlertRule) -> bool:
    if rule.type is RuleType.DEAD_LETTERS:
        return rule.measure is DeadLetterMeasure.COUNT
    return rule.type in (RuleType.NEW_ERROR_GROUP, RuleType.PIPELINE_STALE)


def _check_threshold(rule: AlertRule, description: TypeDescription) -> None:
    if rule.threshold is None and description.threshold is None:
        raise InvalidRequest(f"{rule.type} needs a threshold ({description.unit}).", field="threshold")
    for name, value in (("threshold", rule.threshold), ("clearThreshold", rule.clear_threshold)):
        if value is not None and not 0 <= value < MAX_THRESHOLD:
            raise InvalidRequest(f"{name} must be between 0 and 10^15.", field=name)
        if value is not None and description.unit is Unit.SHARE and value > 1:
            raise InvalidRequest(f"{name} is a share and must be between 0 and 1.", field=name)
    threshold = description.threshold if rule.threshold is None else rule.threshold
    if rule.clear_threshold is None or threshold is None:
        return
    is_below = (rule.operator or description.operator).value == "LESS_THAN"
    if (rule.clear_threshold < threshold) if is_below else (rule.clear_threshold > threshold):
        side = "above" if is_below else "below"
        raise InvalidRequest(
            f"clearThreshold must be {side} the threshold or equal to it.", field="clearThreshold"
        )


def _check_times(rule: AlertRule) -> None:
    window = rule.window_minutes
    if window is not None and not 1 <= window <= MAX_WINDOW_MINUTES:
        raise InvalidRequest(
            f"windowMinutes must be between 1 and {MAX_WINDOW_MINUTES}.", field="windowMinutes"
        )
    if window is not None and window > MAX_SHORT_WINDOW_MINUTES and window % 60:
        raise InvalidRequest(
            f"windowMinutes above {MAX_SHORT_WINDOW_MINUTES} must be whole hours, such as 180.",
            field="windowMinutes",
        )
    minutes = {
        "forMinutes": rule.for_minutes,
        "keepFiringForMinutes": rule.keep_firing_for_minutes,
        "cooldownMinutes": rule.cooldown_minutes,
        "repeatMinutes": rule.repeat_minutes,
    }
    for name, value in minutes.items():
        if value is not None and not 0 <= value <= MAX_MINUTES:
            raise InvalidRequest(f"{name} must be between 0 and {MAX_MINUTES:,.0f}.", field=name)
    for name, count in (("minSamples", rule.min_samples), ("minObservedPoints", rule.min_observed_points)):
        if count is not None and not 0 <= count <= 1_000_000_000:
            raise InvalidRequest(f"{name} must be between 0 and 1,000,000,000.", field=name)


def _check_texts(rule: AlertRule) -> None:
    if len(rule.labels) > MAX_LABELS or any(
        not key or len(key) > MAX_LABEL_LENGTH or len(value) > MAX_LABEL_LENGTH
        for key, value in rule.labels.items()
    ):
        raise InvalidRequest(
            f"labels must be at most {MAX_LABELS} pairs of texts with up to {MAX_LABEL_LENGTH} characters.",
            field="labels",
        )
    if rule.runbook is not None and not re.fullmatch(r"https?://\S{1,1990}", rule.runbook):
        raise InvalidRequest("runbook must be a link that starts with http:// or https://.", field="runbook")
    if len(rule.description) > 2_000:
        raise InvalidRequest("description must have at most 2,000 characters.", field="description")


def _suggest(name: str) -> str:
    similar = difflib.get_close_matches(name, list(RULE_FIELD_NAMES.values()), n=1)
    return f". Did you mean {similar[0]}?" if similar else "."
