"""Time as a value that tests can own."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache

Clock = Callable[[], float]
"""Seconds since the epoch."""

system_clock: Clock = time.time


def now_ms(clock: Clock = system_clock) -> int:
    return int(clock() * 1000)


def to_utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def iso(moment: datetime) -> str:
    """RFC 3339 in UTC with milliseconds and a `Z`, the form every response uses."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@lru_cache(maxsize=1_000)
def iso_of(seconds: float) -> str:
    """The same of seconds since the epoch. What came together is often asked for one by one."""
    return iso(to_utc(seconds))
