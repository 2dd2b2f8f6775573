"""Quotas as options of commands: NAME=LIMIT."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import InvalidRequest

NO_LIMIT = "none"
"""The text that removes a limit."""


def parse_quota_options(option: str, texts: Sequence[str]) -> dict[str, int | None]:
    """Return limits by the name of the quota. The broker checks the names and limits."""
    limits: dict[str, int | None] = {}
    for text in texts:
        name, equals, limit = text.partition("=")
        if not (equals and name and (limit == NO_LIMIT or limit.isdecimal())):
            raise InvalidRequest(
                f"{option} {text!r} is not valid. Write NAME=LIMIT with a whole number, such as "
                f"requestsPerSecond=100, or NAME={NO_LIMIT} for no limit."
            )
        limits[name] = None if limit == NO_LIMIT else int(limit)
    return limits
