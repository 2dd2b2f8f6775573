"""The window a series covers: where it starts and ends, how wide its points are, which tier answers."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.errors import InvalidRequest
from penstock.warehouse.tiers import FINE, HOUR, TIERS, Tier, choose_tier

MOST_POINTS = 11_000
"""More than any row of the routing needs (7 days in minutes: 10,080), and more than a chart can show."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"([1-9][0-9]{0,8})([smhdw])")
PERIOD_FORMS = "a whole number with s, m, h, d or w, up to 400d, such as 30m, 2h, 24h, 7d or 30d"
RESOLUTION_FORMS = "a multiple of 5s written like a period, such as 5s, 1m, 15m or 1h"


@dataclass(frozen=True, slots=True)
class Window:
    """Points of `step_s` seconds from `start_s` until before `end_s`; `now_s` is the clock it was made by."""

    start_s: int
    end_s: int
    step_s: int
    tier: Tier
    now_s: float

    @property
    def buckets(self) -> range:
        return range(self.start_s, self.end_s, self.step_s)

    @property
    def resolution(self) -> str:
        for unit in ("h", "m", "s"):
            if self.step_s % _UNITS[unit] == 0:
                return f"{self.step_s // _UNITS[unit]}{unit}"
        raise AssertionError("a step is whole seconds")


def window(
    *,
    period: str | None = "30m",
    start: datetime | None = None,
    end: datetime | None = None,
    resolution: str | None = None,
    now_s: float,
) -> Window:
    """The window that is asked for; raises InvalidRequest saying what would be accepted.

    `start` (to `end`, or to now) wins over `period`, which counts back from `end` or now. The newest point is
    the one that `end` falls in, complete or not, so a period of n steps has n points.
    """
    until = min(_seconds(end), now_s) if end is not None else now_s
    if start is not None:
        since = _seconds(start)
        if since >= until:
            raise InvalidRequest("the start of the window must lie before its end, and in the past")
        length = until - since
    else:
        length = _duration(period or "30m", "period", PERIOD_FORMS)
        since = until - length
    if length > HOUR.retention_s:
        raise InvalidRequest(f"the window is longer than {HOUR.days} days, and nothing older is kept")
    tier = choose_tier(length, now_s - since)
    step = tier.width_s
    if resolution is not None:
        step = _duration(resolution, "resolution", RESOLUTION_FORMS)
        tier = _tier_for(step, now_s - since)
    # A running point is part of the window; one that would only begin at a given end is not.
    finish = math.floor(until / step) * step + step if end is None else math.ceil(until / step) * step
    whole = math.ceil(length / step) * step
    begin = math.floor(since / step) * step if start is not None else finish - whole
    points = (finish - begin) // step
    if points > MOST_POINTS:
        raise InvalidRequest(
            f"that would be {points} points; at most {MOST_POINTS} are given: ask for a coarser resolution"
        )
    return Window(begin, finish, step, tier, now_s)


def _tier_for(step_s: int, age_s: float) -> Tier:
    """The coarsest tier that can give points of this width, and still has the window's start."""
    if step_s % FINE.width_s:
        raise InvalidRequest(f"the resolution must be {RESOLUTION_FORMS}")
    fitting = [tier for tier in TIERS if step_s % tier.width_s == 0]
    kept = [tier for tier in fitting if age_s <= tier.retention_s]
    if not kept:
        days = fitting[-1].days
        raise InvalidRequest(
            f"points that fine are kept for {days} days: ask for a later start or a coarser resolution"
        )
    return kept[-1]


def _duration(text: str, what: str, forms: str) -> int:
    matched = _DURATION.fullmatch(text)
    if matched is None:
        raise InvalidRequest(f"{text!r} is no {what}: it must be {forms}", **{what: text})
    seconds = int(matched[1]) * _UNITS[matched[2]]
    if seconds > HOUR.retention_s:
        raise InvalidRequest(f"{text!r} is too long: the {what} must be {forms}", **{what: text})
    return seconds


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
