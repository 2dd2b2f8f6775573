"""The window of time that minute rows are asked for, and the buckets in it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import Depends, Query

from penstock.api.http.parameters import Timestamp
from penstock.clock import iso, to_utc
from penstock.errors import InvalidRequest
from penstock.warehouse.series.window import MAX_POINTS

POINTS_BY_DEFAULT = 400
DEFAULT_S = 3_600
WIDTHS_MIN = (1, 5, 15, 30, 60, 180, 360, 720, 1440)

Start = Annotated[
    Timestamp | None, Query(alias="from", description="the window's start; an hour ago if left out")
]
End = Annotated[Timestamp | None, Query(alias="to", description="the window's end; now if left out")]
Interval = Annotated[
    Literal["minute", "hour", "day"] | None, Query(description="width of a point; by the window if left out")
]
Bucket = Annotated[
    int | None, Query(ge=1, le=1440, description="width of a point in minutes, instead of an interval")
]
_MINUTES = {"minute": 1, "hour": 60, "day": 1440}


@dataclass(frozen=True, slots=True)
class Window:
    """From `start` until before `end`, in buckets of `width`; buckets begin at multiples of their width."""

    start: datetime
    end: datetime
    width: timedelta

    @property
    def buckets(self) -> list[datetime]:
        step_s = int(self.width.total_seconds())
        first = int(self.start.timestamp()) // step_s * step_s
        last_s = self.end.timestamp()
        return [to_utc(first + step_s * n) for n in range(int((last_s - first - 1e-6) // step_s) + 1)]

    def described(self) -> dict[str, Any]:
        minutes = int(self.width.total_seconds()) // 60
        words = {1440: "1d"}.get(minutes) or (f"{minutes // 60}h" if minutes % 60 == 0 else f"{minutes}m")
        return {"timeRange": {"from": iso(self.start), "to": iso(self.end)}, "interval": words}

    def points(self, found: dict[datetime, dict[str, Any]], gap: dict[str, Any]) -> list[dict[str, Any]]:
        """A point per bucket; one that nothing is known of is a gap."""
        return [{"bucket": iso(at), "timestamp": iso(at), **found.get(at, gap)} for at in self.buckets]


def window(start: Start = None, end: End = None, interval: Interval = None, bucket: Bucket = None) -> Window:
    """The window that was asked for. Raises InvalidRequest when it is none, or has more points than anybody
    could look at."""
    if interval is not None and bucket is not None:
        raise InvalidRequest("give either interval or bucket, not both")
    until = to_utc(time.time()) if end is None else end
    since = until - timedelta(seconds=DEFAULT_S) if start is None else start
    if since >= until:
        raise InvalidRequest("from must be before to")
    minutes = (until - since) / timedelta(minutes=1)
    width = bucket or (_MINUTES[interval] if interval else None)
    if width is None:
        width = next((w for w in WIDTHS_MIN if minutes / w <= POINTS_BY_DEFAULT), WIDTHS_MIN[-1])
    if minutes / width > MAX_POINTS:
        raise InvalidRequest(
            f"that would be {minutes / width:,.0f} points, and {MAX_POINTS:,} are the most: "
            "ask for a shorter time or wider points (bucket, in minutes)"
        )
    return Window(since, until, timedelta(minutes=width))


Asked = Annotated[Window, Depends(window)]
"""The window of a route, from its parameters `from`, `to`, `interval` and `bucket`."""


def ratio(amount: float | None, over: float | None, digits: int = 3) -> float | None:
    """The quotient, or None where there is nothing to divide by."""
    return round(amount / over, digits) if amount is not None and over else None
