"""Format the settings of `penstock config`, by group, for the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from penstock.cli.platform_info import SettingRow
from penstock.config import PREFIX

MEANING_INDENT = 4


def settings_list(rows: Sequence[SettingRow]) -> RenderableType:
    """Build two lines per setting: name and value; then source and meaning. Values never wrap."""
    parts: list[RenderableType] = []
    name_width = max(len(row.name) for row in rows)
    for group, group_rows in groupby(rows, key=lambda row: row.group):
        parts.append(Text(f"\n{group}" if parts else group, style="bold"))
        for row in group_rows:
            parts += [_value_line(row, name_width), _meaning(row)]
    ignored = [row for row in rows if row.ignored_source]
    if ignored:
        parts.append(Text(f"\n{_describe_ignored(ignored)}", style="yellow"))
    return Group(*parts)


def settings_json(rows: Sequence[SettingRow]) -> dict[str, object]:
    return {row.name: {"value": row.value, "from": row.source, "group": row.group} for row in rows}


def _value_line(row: SettingRow, name_width: int) -> Text:
    line = Text(f"  {row.name:<{name_width}}  ", no_wrap=True, overflow="ignore")
    return line.append(_format_value(row.value))


def _meaning(row: SettingRow) -> Padding:
    source = "" if row.source == "default" else f"from {row.source}: "
    text = Text.assemble((source, "cyan"), (row.help, "dim"))
    return Padding(text, (0, 0, 0, MEANING_INDENT), expand=False)


def _format_value(value: object) -> str:
    """Format a value as a variable or the settings file takes it; an empty one as `–`."""
    if isinstance(value, bool):
        return str(value).lower()
    is_whole = isinstance(value, float) and value.is_integer()
    return str(value).removesuffix(".0") if is_whole else str(value) or "–"


def _describe_ignored(rows: Sequence[SettingRow]) -> str:
    variables = ", ".join(f"{PREFIX}{row.name.upper()}" for row in rows)
    verb = "has another value" if len(rows) == 1 else "have other values"
    return f"{variables} {verb} here than in the running platform. Restart it to apply them."
