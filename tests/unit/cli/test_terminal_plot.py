"""The plot of a series in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from rich.cells import cell_len
from rich.console import Console

from penstock.cli.terminal_plot import Plot, resample


def render(values: Sequence[float | None], threshold: float | None, width: int = 80) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(Plot(values, threshold, lambda value: f"{value:,.0f}", "Monday", "Sunday"))
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_plot_fits_the_console(width: int) -> None:
    lines = render([1.0, 5_000_000.0, None, 3.0] * 60, 2_000_000, width)
    assert max(cell_len(line) for line in lines) <= width


def test_the_threshold_has_a_labelled_line() -> None:
    [line] = [line for line in render([0.0, 10.0, 0.0], 50) if "╌" in line]
    assert line.strip().startswith("50 ┤")


def test_a_higher_value_is_drawn_higher() -> None:
    lines = render([0.0] * 40 + [100.0] * 40, None)[:10]
    top, bottom = lines[0].split("┤")[1], lines[-1].split("┤")[1]
    assert (top[:30].strip(), bottom[-30:].strip()) == ("", "")
    assert top[-20:].strip()
    assert bottom[:20].strip()


def test_missing_values_leave_a_gap() -> None:
    bottom = render([0.0] * 20 + [None] * 20 + [0.0] * 20, None)[9].split("┤")[1]
    third = len(bottom) // 3
    assert not bottom[third + 2 : 2 * third - 2].strip()


def test_resampling_keeps_spikes() -> None:
    assert max(value or 0 for value in resample([1.0] * 500 + [99.0] + [1.0] * 500, 100)) == 99
    assert resample([1.0, 2.0], 4) == [1.0, 1.0, 2.0, 2.0]
