"""Draw the small chart of an incident: the value of the last hours, and the threshold."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 720, 280
LEFT, TOP, RIGHT, BOTTOM = 92, 58, WIDTH - 20, HEIGHT - 34
"""The plot area."""
SCALE = 4
"""Lines are drawn this much larger and reduced afterwards, which makes them smooth. Text is not."""

BACKGROUND, GRID, AXIS_TEXT, TITLE = "#ffffff", "#e5e7eb", "#6b7280", "#111827"
LINE, FILL, THRESHOLD = "#2563eb", "#dbeafe", "#dc2626"

MAX_TICKS = 4
_SECOND, _MINUTE, _HOUR = 1_000.0, 60_000.0, 3_600_000.0
DURATION_STEPS_MS = (
    *(_SECOND * number for number in (1, 2, 5, 10, 15, 30)),
    *(_MINUTE * number for number in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * number for number in (1, 2, 3, 6, 12, 24, 48, 120, 240)),
)

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Chart:
    """What a chart shows. Values that are NaN or infinite leave a gap."""

    title: str
    subtitle: str
    times_s: Sequence[int]
    values: Sequence[float]
    threshold: float
    format_value: Callable[[float], str]
    is_duration: bool = False
    """The values are milliseconds: the grid has round times."""


def draw_chart(chart: Chart) -> bytes:
    """Return the chart as PNG."""
    finite = [value for value in chart.values if math.isfinite(value)]
    ticks = _ticks(max([*finite, chart.threshold, 0.0]), chart.is_duration)
    scale = _Scale(chart.times_s[0], chart.times_s[-1], ticks[-1])
    image = Image.new("RGB", (WIDTH * SCALE, HEIGHT * SCALE), BACKGROUND)
    _draw_lines(ImageDraw.Draw(image), chart, scale, ticks)
    image = image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
    _draw_texts(ImageDraw.Draw(image), chart, scale, ticks)
    buffer = io.BytesIO()
    image.quantize(64).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


@dataclass(frozen=True, slots=True)
class _Scale:
    """Converts times and values to pixels."""

    start_s: int
    end_s: int
    top_value: float

    def x(self, time_s: float) -> float:
        return LEFT + (time_s - self.start_s) / max(1, self.end_s - self.start_s) * (RIGHT - LEFT)

    def y(self, value: float) -> float:
        return BOTTOM - value / self.top_value * (BOTTOM - TOP)


def _ticks(highest: float, is_duration: bool) -> list[float]:
    """Return the values of the grid lines: round numbers from 0 to the first one not below the highest."""
    if highest <= 0:
        return [0.0, 1.0]
    base = 10.0 ** math.floor(math.log10(highest / MAX_TICKS))
    steps = [base * factor for factor in (1, 2, 2.5, 5, 10)]
    if is_duration and highest > DURATION_STEPS_MS[0]:
        steps = [*DURATION_STEPS_MS, highest]
    step = next(step for step in steps if step * MAX_TICKS >= highest)
    return [step * number for number in range(math.ceil(highest / step) + 1)]


def _draw_lines(draw: ImageDraw.ImageDraw, chart: Chart, scale: _Scale, ticks: Sequence[float]) -> None:
    def enlarged(*points: Point) -> list[Point]:
        return [(x * SCALE, y * SCALE) for x, y in points]

    for tick in ticks:
        draw.line(enlarged((LEFT, scale.y(tick)), (RIGHT, scale.y(tick))), GRID, SCALE)
    for run in _runs(chart, scale):
        draw.polygon(enlarged((run[0][0], BOTTOM), *run, (run[-1][0], BOTTOM)), FILL)
    threshold_y = scale.y(chart.threshold)
    for dash_x in range(LEFT, RIGHT, 10):
        dash = enlarged((dash_x, threshold_y), (min(dash_x + 6, RIGHT), threshold_y))
        draw.line(dash, THRESHOLD, 2 * SCALE)
    for run in _runs(chart, scale):
        draw.line(enlarged(*run), LINE, 2 * SCALE, joint="curve")
        x, y = run[-1]
        if x >= RIGHT - 1:  # the moment at which the incident opened
            draw.ellipse(enlarged((x - 4, y - 4), (x + 4, y + 4)), LINE)


def _runs(chart: Chart, scale: _Scale) -> Iterator[list[Point]]:
    """Yield the points of the line between gaps, as steps are measured: a point per time."""
    run: list[Point] = []
    for time_s, value in zip(chart.times_s, chart.values, strict=True):
        if math.isfinite(value):
            run.append((scale.x(time_s), scale.y(value)))
        elif run:
            yield _at_least_two(run)
            run = []
    if run:
        yield _at_least_two(run)


def _at_least_two(run: list[Point]) -> list[Point]:
    """A line needs two points: a single value becomes a short dash."""
    return run if len(run) > 1 else [(run[0][0] - 2, run[0][1]), run[0]]


def _draw_texts(draw: ImageDraw.ImageDraw, chart: Chart, scale: _Scale, ticks: Sequence[float]) -> None:
    small, large = ImageFont.load_default(12), ImageFont.load_default(16)
    draw.text((16, 10), _shorten(draw, chart.title, large), TITLE, large)
    draw.text((16, 32), _shorten(draw, chart.subtitle, small), AXIS_TEXT, small)
    for tick in ticks:
        draw.text((LEFT - 8, scale.y(tick)), chart.format_value(tick), AXIS_TEXT, small, anchor="rm")
    label = f"threshold {chart.format_value(chart.threshold)}"
    draw.text((LEFT + 6, scale.y(chart.threshold) - 4), label, THRESHOLD, small, anchor="ls")
    length_s = scale.end_s - scale.start_s
    for quarter in range(5):
        time_s = scale.start_s + length_s * quarter / 4
        moment = datetime.fromtimestamp(time_s, UTC)
        text = f"{moment:%d %b %H:%M}" if length_s > 86_400 else f"{moment:%H:%M}"
        text, anchor = (f"{text} UTC", "rt") if quarter == 4 else (text, "mt")
        draw.text((scale.x(time_s), BOTTOM + 10), text, AXIS_TEXT, small, anchor=anchor)


def _shorten(draw: ImageDraw.ImageDraw, text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    """Return the text, cut off where the picture ends."""
    text = text.replace("\n", " ")
    if draw.textlength(text, font) <= WIDTH - 32:
        return text
    while text and draw.textlength(f"{text}...", font) > WIDTH - 32:
        text = text[: int(len(text) * 0.9)]
    return f"{text}..."
