"""Show what changed between two JSON values, one line per field."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rich.text import Text


def describe_difference(before: object, after: object) -> list[Text]:
    """Return the fields that were removed (-), added (+) and changed (~), by their paths."""
    if before is None and after is None:
        return [Text("Nothing changed, or the call does not say what.", style="dim")]
    old, new = dict(_flatten(before)), dict(_flatten(after))
    lines = []
    for path in dict.fromkeys([*old, *new]):
        if path not in new:
            lines.append(_line("-", path, _to_text(old[path]), "red"))
        elif path not in old:
            lines.append(_line("+", path, _to_text(new[path]), "green"))
        elif old[path] != new[path]:
            lines.append(_line("~", path, f"{_to_text(old[path])} → {_to_text(new[path])}", "yellow"))
    return lines or [Text("The object is the same as before.", style="dim")]


def _flatten(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield the path and value of each field that is no object or list. Empty ones count as values."""
    if isinstance(value, dict) and value:
        for name, member in value.items():
            yield from _flatten(member, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(member, dict | list) for member in value):
        for index, member in enumerate(value):
            yield from _flatten(member, f"{path}[{index}]")
    elif value is not None or path:
        yield path, value


def _to_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _line(sign: str, path: str, text: str, style: str) -> Text:
    line = Text(f"{sign} ", style=style)
    return line.append(f"{path}: " if path else "", style="bold").append(text)
