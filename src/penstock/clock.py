"""Clocks and time formats. A clock is a parameter, so that tests control the time."""

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


def iso(timestamp: datetime) -> str:
    """Format as RFC 3339 in UTC with milliseconds and a `Z`, as every response does."""
    return timestamp.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@lru_cache(maxsize=1_000)
def iso_of(seconds: float) -> str:
    """Format seconds since the epoch like `iso`. Cached: the messages of one segment share their time."""
    return iso(datetime.fromtimestamp(seconds, UTC))
