"""Say in plain words what is wrong with a body that msgspec refuses. No regular expression is ever shown."""

from __future__ import annotations

import re

from penstock.validation_text import TIME_RULE

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
PRINTABLE_PATTERN = r"^[^\x00-\x1f\x7f]*$"
STORABLE_PATTERN = r"^[^\x00]*$"
TIME_OF_DAY_PATTERN = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"
EMAIL_PATTERN = r"^[^@\s<>,;\x00-\x1f]+@[^@\s<>,;\x00-\x1f]+$"
HOST_PATTERN = r"^[A-Za-z0-9._:-]+$"

_PATTERN_RULES = {
    NAME_PATTERN: "must have only letters, digits, dots, dashes and underscores, and begin with one of the "
    "first two",
    PRINTABLE_PATTERN: "must have no control characters",
    STORABLE_PATTERN: "must not have the character NUL",
    TIME_OF_DAY_PATTERN: "must be a time of day, such as 22:00",
    EMAIL_PATTERN: "must be an e-mail address",
    HOST_PATTERN: "must be the name or the IP address of a host",
}
_KINDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
    "datetime": "a time",
    "uuid": "a UUID",
}
_SIZES = {"str": "character", "array": "entry", "object": "entry", "int": "", "float": ""}
_PLURALS = {"character": "characters", "entry": "entries"}


def describe_body_error(error: Exception) -> tuple[str, str]:
    """Return a sentence about an error of msgspec, and the path of the field that it is about.

    The path is empty if the body as a whole is wrong.
    """
    text, _, location = str(error).partition(" - at `$")
    path = location.removesuffix("`").removeprefix(".")
    if field := re.search(r"field `(.+)`$", text):
        name = f"{path}.{field[1]}".removeprefix(".")
        is_missing = "missing" in text
        return f"{name} is missing." if is_missing else f"{name} is not a known field.", name
    rule = _describe_rule(text)
    # Without a rule it is the text of a check of ours, which names its field.
    return f"{text.removesuffix('.')}." if rule is None else f"{path or 'The body'} {rule}.", path


def _describe_rule(text: str) -> str | None:
    """Return the rule of msgspec that a value breaks, such as `must be a whole number`."""
    if pattern := re.match(r"Expected `\w+` matching regex '(.*)'$", text, re.DOTALL):
        return _PATTERN_RULES.get(pattern[1].replace("\\\\", "\\"), "has characters that are not allowed")
    if "datetime" in text:
        return f"{TIME_RULE}, with a time zone"
    if value := re.match(r"Invalid (?:enum )?value (.*)$", text):
        return f"{value[1]} does not exist"
    if size := re.match(r"Expected `(\w+)`(?: of length)? ([<>]=?) (.+)$", text):
        return _describe_size(*size.groups())
    if kind := re.match(r"Expected `([^`]+)`", text):
        kinds = [_KINDS.get(name, name) for name in kind[1].split(" | ")]
        return f"must be {' or '.join(kinds)}"
    return None


def _describe_size(kind: str, operator: str, limit: str) -> str:
    bound = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}[operator]
    unit = _SIZES.get(kind, "")
    if not unit:
        return f"must be {bound} {limit}"
    return f"must have {bound} {limit} {unit if limit == '1' else _PLURALS[unit]}"
