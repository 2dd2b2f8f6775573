"""The time window of a series: its start and end, the width of its points, and the tier to read."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypedDict, Unpack

from penstock.errors import InvalidRequest
from penstock.warehouse.tiers import FINE, HOUR, TIERS, Tier, choose_tier

MAX_POINTS = 11_000
"""The most points of any series that the API returns. No default window needs more (7 days in minutes:
10,080), and no chart can show more."""

DEFAULT_PERIOD = "30m"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"([1-9][0-9]{0,8})([smhdw])")
PERIOD_FORMS = "a whole number with s, m, h, d or w, up to 400d, such as 30m, 2h, 24h, 7d or 30d"
RESOLUTION_FORMS = "a multiple of 5s written like a period, such as 5s, 1m, 15m or 1h"


class SeriesRequest(TypedDict, total=False):
    """The window and the fields of a requested series.

    `period` is 30m by default. `now_s` is the current time, which tests set. All events up to
    `counted_until_s` have been counted, according to the pipeline's stream positions; None means unknown.
    """

    period: str | None
    start: datetime | None
    end: datetime | None
    resolution: str | None
    fields: Sequence[str] | None
    counted_until_s: float | None
    now_s: float | None


@dataclass(frozen=True, slots=True)
class SeriesWindow:
    """Points of `step_s` seconds, from `start_s` up to but not including `end_s`. `now_s` is the time of the
    request."""

    start_s: int
    end_s: int
    step_s: int
    tier: Tier
    now_s: float

    @property
    def buckets(self) -> range:
        """The start of each point, in seconds since the epoch."""
        return range(self.start_s, self.end_s, self.step_s)

    @property
    def resolution(self) -> str:
        """The width of a point in the form of a request, such as 5s."""
        for unit in ("h", "m", "s"):
            if self.step_s % _UNITS[unit] == 0:
                return f"{self.step_s // _UNITS[unit]}{unit}"
        raise AssertionError("a step is whole seconds")


def resolve_window(**request: Unpack[SeriesRequest]) -> SeriesWindow:
    """Return the requested window. Raises InvalidRequest with the accepted forms.

    `start` (up to `end`, or now) takes precedence over `period`, which counts back from `end` or now. The
    newest point is the one that contains `end`, complete or not, so a period of n steps has n points.
    """
    now = request.get("now_s")
    now_s = time.time() if now is None else now
    start, end, resolution = request.get("start"), request.get("end"), request.get("resolution")
    until = min(_to_seconds(end), now_s) if end is not None else now_s
    if start is not None:
        since = _to_seconds(start)
        if since >= until:
            raise InvalidRequest("The window must start before its end, and in the past.")
        length = until - since
    else:
        length = parse_period_s(request.get("period") or DEFAULT_PERIOD)
        since = until - length
    if length > HOUR.retention_s:
        raise InvalidRequest(f"The window is longer than {HOUR.days} days, the retention of metrics.")
    tier = choose_tier(length, now_s - since)
    step = tier.width_s
    if resolution is not None:
        step = _parse_duration(resolution, "resolution", RESOLUTION_FORMS)
        tier = _choose_tier_for_step(step, now_s - since)
    # The current point is part of the window; a point that starts exactly at a requested end is not.
    window_end = math.floor(until / step) * step + step if end is None else math.ceil(until / step) * step
    rounded_length = math.ceil(length / step) * step
    window_start = math.floor(since / step) * step if start is not None else window_end - rounded_length
    points = (window_end - window_start) // step
    if points > MAX_POINTS:
        raise InvalidRequest(
            f"The window has {points} points, but at most {MAX_POINTS} are allowed. "
            "Request a coarser resolution."
        )
    return SeriesWindow(window_start, window_end, step, tier, now_s)


def parse_period_s(text: str) -> int:
    """Return the seconds of a period such as 7d. Raises InvalidRequest with the accepted forms."""
    return _parse_duration(text, "period", PERIOD_FORMS)


def _choose_tier_for_step(step_s: int, age_s: float) -> Tier:
    """Return the coarsest tier that has points of this width and retains the window's start."""
    if step_s % FINE.width_s:
        raise InvalidRequest(f"The resolution must be {RESOLUTION_FORMS}.")
    fitting = [tier for tier in TIERS if step_s % tier.width_s == 0]
    retaining = [tier for tier in fitting if age_s <= tier.retention_s]
    if not retaining:
        days = fitting[-1].days
        raise InvalidRequest(
            f"Points of this resolution are kept for {days} days. "
            "Request a later start or a coarser resolution."
        )
    return retaining[-1]


def _parse_duration(text: str, parameter: str, forms: str) -> int:
    matched = _DURATION.fullmatch(text)
    if matched is None:
        raise InvalidRequest(f"{text!r} is not a valid {parameter}. It must be {forms}.", **{parameter: text})
    seconds = int(matched[1]) * _UNITS[matched[2]]
    if seconds > HOUR.retention_s:
        raise InvalidRequest(f"{text!r} is too long. The {parameter} must be {forms}.", **{parameter: text})
    return seconds


def _to_seconds(time_: datetime) -> float:
    return (time_ if time_.tzinfo else time_.replace(tzinfo=UTC)).timestamp()
