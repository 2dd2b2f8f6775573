"""Options of durable queues on the command line: `--set leaseTime=60`."""

from __future__ import annotations

import json

from penstock.errors import InvalidRequest


def parse_queue_options(texts: list[str]) -> dict[str, object]:
    """Return the options by name. The broker checks names and values and suggests similar names."""
    values: dict[str, object] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not (name and separator and value):
            raise InvalidRequest(f"--set {text!r} is not OPTION=VALUE. Use --set leaseTime=60, for example.")
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
    return values
