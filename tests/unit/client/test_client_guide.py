"""The client guide lists all settings and all options of a consumer."""

from __future__ import annotations

import inspect
from pathlib import Path

from penstock.client import Client, ClientSettings

GUIDE = Path(__file__).parents[3] / "docs" / "client.md"


def table_rows(heading: str) -> list[list[str]]:
    """Return the cells of the first table after a heading of the guide."""
    lines = GUIDE.read_text().split(f"## {heading}\n", 1)[1].splitlines()
    separator_index = next(index for index, line in enumerate(lines) if line.startswith("|---"))
    rows = []
    for line in lines[separator_index + 1 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().strip("`") for cell in line.strip("|").split("|")])
    return rows


def test_the_guide_lists_every_setting_with_its_default() -> None:
    documented = {row[0]: row[1] for row in table_rows("Settings")}
    fields = ClientSettings.__dataclass_fields__
    assert documented == {name: str(field.default) for name, field in fields.items()}


def test_the_guide_lists_every_option_of_a_consumer_with_its_default() -> None:
    documented = {row[0]: row[1] for row in table_rows("Consumer options")}
    parameters = inspect.signature(Client.consume).parameters
    expected = {
        name: str(parameter.default)
        for name, parameter in parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert documented == expected
