"""Plot a series with a threshold line in the terminal, with braille characters: 8 dots per character."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

BRAILLE = 0x2800
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot of a character, by row and column."""

MIN_WIDTH = 20
MAX_WIDTH = 120
VALUE_STYLE, THRESHOLD_STYLE, AXIS_STYLE = "cyan", "red", "dim"


@dataclass(slots=True)
class Plot:
    """A series over time. None in `values` leaves a gap."""

    values: Sequence[float | None]
    threshold: float | None
    format_value: Callable[[float], str]
    start_label: str
    end_label: str
    height: int = 10
    """Rows of characters."""
    _top: float = field(init=False)

    def __post_init__(self) -> None:
        known = [value for value in self.values if value is not None]
        highest = max([*known, self.threshold or 0.0], default=0.0)
        self._top = highest * 1.05 or 1.0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        threshold_row = self._row_of(self.threshold)
        labels = {0: self.format_value(self._top / 1.05), self.height - 1: self.format_value(0.0)}
        if self.threshold is not None and threshold_row is not None:
            labels[threshold_row] = self.format_value(self.threshold)
        margin = max(cell_len(label) for label in labels.values())
        width = max(MIN_WIDTH, min(options.max_width, MAX_WIDTH) - margin - 2)
        cells = self._draw(width)
        for number, row in enumerate(cells):
            label = labels.get(number, "")
            is_threshold = number == threshold_row
            style = THRESHOLD_STYLE if is_threshold else AXIS_STYLE
            line = Text(" " * (margin - cell_len(label)) + label + " ", style=style)
            line.append("┤" if label else "│", style=AXIS_STYLE)
            for bits in row:
                if bits:
                    line.append(chr(BRAILLE + bits), style=VALUE_STYLE)
                else:
                    line.append("╌" if is_threshold else " ", style=THRESHOLD_STYLE)
            yield _unwrapped(line)
        yield _unwrapped(Text(" " * (margin + 1) + "└" + "─" * width, style=AXIS_STYLE))
        gap = max(1, width - cell_len(self.start_label) - cell_len(self.end_label))
        labels_line = " " * (margin + 2) + self.start_label + " " * gap + self.end_label
        yield _unwrapped(Text(labels_line, style=AXIS_STYLE))

    def _row_of(self, value: float | None) -> int | None:
        """Return the row of characters that has the value."""
        return None if value is None else (4 * self.height - 1 - self._dot_row(value)) // 4

    def _dot_row(self, value: float) -> int:
        """Return the number of the row of dots, counted from the bottom."""
        rows = 4 * self.height - 1
        return max(0, min(rows, round(value / self._top * rows)))

    def _draw(self, width: int) -> list[list[int]]:
        """Return the dots of each character. Neighbouring values are connected."""
        cells = [[0] * width for _ in range(self.height)]
        previous: int | None = None
        for column, value in enumerate(resample(self.values, 2 * width)):
            if value is None:
                previous = None
                continue
            current = self._dot_row(value)
            low, high = sorted((current, current if previous is None else previous))
            for dot in range(low, high + 1):
                from_top = 4 * self.height - 1 - dot
                cells[from_top // 4][column // 2] |= DOTS[from_top % 4][column % 2]
            previous = current
        return cells


def resample(values: Sequence[float | None], columns: int) -> list[float | None]:
    """Return one value per column: the largest of those that fall into it, or the nearest one."""
    result: list[float | None] = []
    for column in range(columns):
        first = math.floor(column * len(values) / columns)
        end = max(first + 1, math.floor((column + 1) * len(values) / columns))
        known = [value for value in values[first:end] if value is not None]
        result.append(max(known) if known else None)
    return result


def _unwrapped(line: Text) -> Text:
    line.no_wrap = True
    line.overflow = "crop"
    return line
