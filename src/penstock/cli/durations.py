"""Times in options, such as 30m, 2h or 7d."""

from __future__ import annotations

from penstock.errors import InvalidRequest


def parse_duration_s(option: str, text: str, *, may_be_zero: bool = False) -> float:
    """Return the seconds of a time in an option. Raises InvalidRequest if the text is not a time."""
    from penstock.alerts.rules.rule_check import parse_duration_ms

    milliseconds = parse_duration_ms(text)
    if milliseconds is None or not (milliseconds or may_be_zero):
        raise InvalidRequest(f"{option} {text!r} is not a time. Use 30m, 2h or 7d.")
    return milliseconds / 1000
