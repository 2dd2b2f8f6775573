"""The chart of an incident: what is drawn where."""

from __future__ import annotations

import io
import math

import pytest
from PIL import Image

from penstock.alerts.incidents.chart import (
    BOTTOM,
    HEIGHT,
    LEFT,
    LINE,
    RIGHT,
    THRESHOLD,
    TOP,
    WIDTH,
    Chart,
    draw_chart,
)

TIMES_S = range(1_800_000_000, 1_800_000_000 + 180 * 60, 60)


def draw(values: list[float], threshold: float = 50.0, title: str = "backlog: orders") -> Image.Image:
    chart = Chart(title, "80 messages wait", TIMES_S, values, threshold, lambda value: f"{value:g}")
    return Image.open(io.BytesIO(draw_chart(chart))).convert("RGB")


def rows_with(picture: Image.Image, x: int, colour: str) -> list[int]:
    """The rows in which the column at x has about this colour."""
    wanted = tuple(bytes.fromhex(colour[1:]))

    def is_close(y: int) -> bool:
        pixel = picture.getpixel((x, y))
        assert isinstance(pixel, tuple)
        return math.dist(pixel, wanted) < 60

    return [y for y in range(HEIGHT) if is_close(y)]


def test_the_line_and_the_threshold_are_where_their_values_are() -> None:
    picture = draw([25.0] * 180)  # the grid ends at 60: the first round number from the threshold on
    middle = (LEFT + RIGHT) // 2
    assert picture.size == (WIDTH, HEIGHT)
    [*line] = rows_with(picture, middle, LINE)
    expected = BOTTOM - 25 / 60 * (BOTTOM - TOP)
    assert line
    assert all(abs(y - expected) < 3 for y in line)
    threshold_rows = {y for x in range(middle, middle + 10) for y in rows_with(picture, x, THRESHOLD)}
    expected = BOTTOM - 50 / 60 * (BOTTOM - TOP)
    assert threshold_rows
    assert all(abs(y - expected) < 3 for y in threshold_rows)


def test_an_unknown_value_leaves_a_gap() -> None:
    values = [25.0] * 60 + [math.nan] * 60 + [math.inf] * 10 + [25.0] * 50
    picture = draw(values)
    assert rows_with(picture, (LEFT + RIGHT) // 2, LINE) == []
    assert rows_with(picture, LEFT + 50, LINE)


@pytest.mark.parametrize(
    "values", [[0.0] * 180, [math.nan] * 180, [math.inf] * 180, [1e12] * 180, [math.nan] * 179 + [3.0]]
)
@pytest.mark.parametrize("threshold", [0.0, 0.01, 1e9])
def test_every_value_can_be_drawn(values: list[float], threshold: float) -> None:
    assert draw(values, threshold, title="very long " * 50).size == (WIDTH, HEIGHT)
