"""Rows and details for the terminal. Ids and names are never cut or wrapped, so they can be copied."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

COLUMN_GAP = 2
MIN_FOLDED_WIDTH = 16
"""Columns of a console that a folded cell of a table needs to stay readable."""

UNLIMITED_WIDTH = 100_000


def print_output(*renderables: RenderableType) -> None:
    """Print to stdout. Output that is not for a terminal is not wrapped, unless COLUMNS gives a width."""
    is_piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    console = Console(highlight=False, width=UNLIMITED_WIDTH if is_piped else None)
    console.print(*renderables, sep="\n", crop=False)


def plain_table(*columns: str) -> Table:
    """Create a table without a frame; long words wrap instead of being cut off."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


class Listing:
    """Rows with the same columns: a table if it fits the console, otherwise one block per row.

    Only the columns in `folding` wrap. A block has the first cell as its title, and the others below it.
    """

    def __init__(self, *columns: str, folding: Collection[str] = ()) -> None:
        self._columns = columns
        self._folding = [column in folding for column in columns]
        self._rows: list[list[Text]] = []

    def add_row(self, *cells: str | Text) -> None:
        """Add a row. A cell that is a string may have markup."""
        self._rows.append([Text.from_markup(cell) if isinstance(cell, str) else cell for cell in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        if not self._rows:
            return
        widths = self._column_widths()
        total = sum(
            min(width, MIN_FOLDED_WIDTH) if folds else width
            for width, folds in zip(widths, self._folding, strict=True)
        )
        if total + COLUMN_GAP * (len(widths) - 1) <= options.max_width:
            yield self._table(widths)
            return
        for number, row in enumerate(self._rows):
            title, *cells = row
            labelled = zip(self._columns[1:], cells, self._folding[1:], strict=True)
            yield Details(title, [pair for pair in labelled if pair[1].plain not in ("", "–")])
            if number + 1 < len(self._rows):
                yield Text("")

    def _column_widths(self) -> list[int]:
        cells = zip(*self._rows, strict=True)
        return [
            max(cell_len(heading), *(cell_len(cell.plain) for cell in column))
            for heading, column in zip(self._columns, cells, strict=True)
        ]

    def _table(self, widths: Sequence[int]) -> Table:
        table = plain_table(*self._columns)
        for column, width, folds in zip(table.columns, widths, self._folding, strict=True):
            column.no_wrap = not folds
            column.min_width = min(width, MIN_FOLDED_WIDTH) if folds else width
        for row in self._rows:
            table.add_row(*row)
        return table


class Details:
    """A title with labelled values below it. A value wraps only if it says so: label, value, folds."""

    def __init__(self, title: Text, values: Sequence[tuple[str, Text, bool]]) -> None:
        self._title = title
        self._values = values

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        label_width = max((cell_len(label) for label, _, _ in self._values), default=0)
        indent = label_width + 2 * COLUMN_GAP
        title = self._title.copy()
        title.stylize("bold")
        yield _unwrapped(title)
        for label, value, folds in self._values:
            width = max(MIN_FOLDED_WIDTH, options.max_width - indent)
            lines = list(value.wrap(console, width)) if folds else [value]
            for number, line in enumerate(lines):
                heading = f"  {label:<{label_width}}  " if number == 0 else " " * indent
                yield _unwrapped(Text.assemble((heading, "dim"), line))


def details(title: str, values: Sequence[tuple[str, str]], folding: Collection[str] = ()) -> Details:
    """Build details from plain texts; only the values with a label in `folding` wrap."""
    return Details(Text(title), [(label, Text(value), label in folding) for label, value in values])


def with_hint(renderable: RenderableType, hint: str, style: str = "dim") -> RenderableType:
    """Add a sentence below."""
    return Group(renderable, Text(f"\n{hint}", style=style))


def _unwrapped(text: Text) -> Text:
    text.no_wrap = True
    text.overflow = "ignore"
    return text
