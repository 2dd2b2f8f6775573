"""The time window of a request for minute rows, and the buckets in it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Literal

from fastapi import Depends, Query

from penstock.api.http.parameters import Timestamp
from penstock.clock import iso, to_utc
from penstock.errors import InvalidRequest
from penstock.warehouse.series.window import MAX_POINTS

TARGET_POINTS = 400
"""The default bucket width gives at most this many points, as long as a width of `WIDTHS_MIN` does."""
DEFAULT_WINDOW_S = 3_600
WIDTHS_MIN = (1, 5, 15, 30, 60, 180, 360, 720, 1440)

Start = Annotated[
    Timestamp | None, Query(alias="from", description="start of the window; an hour ago if left out")
]
End = Annotated[Timestamp | None, Query(alias="to", description="end of the window; now if left out")]
Interval = Annotated[
    Literal["minute", "hour", "day"] | None,
    Query(description="width of a point; chosen by the length of the window if left out"),
]
Bucket = Annotated[
    int | None, Query(ge=1, le=1440, description="width of a point in minutes, instead of an interval")
]
_INTERVAL_MINUTES = {"minute": 1, "hour": 60, "day": 1440}


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """From `start` until before `end`, in buckets of `width`; buckets begin at multiples of their width."""

    start: datetime
    end: datetime
    width: timedelta

    @property
    def buckets(self) -> list[datetime]:
        step_s = int(self.width.total_seconds())
        first_s = int(self.start.timestamp()) // step_s * step_s
        end_s = self.end.timestamp()
        return [to_utc(first_s + step_s * n) for n in range(int((end_s - first_s - 1e-6) // step_s) + 1)]

    def to_dict(self) -> dict[str, object]:
        minutes = int(self.width.total_seconds()) // 60
        interval = {1440: "1d"}.get(minutes) or (f"{minutes // 60}h" if minutes % 60 == 0 else f"{minutes}m")
        return {"timeRange": {"from": iso(self.start), "to": iso(self.end)}, "interval": interval}

    def points(
        self, values: Mapping[datetime, Mapping[str, object]], gap: Mapping[str, object]
    ) -> list[dict[str, object]]:
        """One point per bucket; a bucket without values has those of `gap`."""
        return [
            {"bucket": iso(bucket), "timestamp": iso(bucket), **values.get(bucket, gap)}
            for bucket in self.buckets
        ]


def parse_window(
    start: Start = None, end: End = None, interval: Interval = None, bucket: Bucket = None
) -> TimeWindow:
    """The window of a request. Raises InvalidRequest if it is empty or has more than `MAX_POINTS` points."""
    if interval is not None and bucket is not None:
        raise InvalidRequest("Send either interval or bucket, not both.")
    until = to_utc(time.time()) if end is None else end
    since = until - timedelta(seconds=DEFAULT_WINDOW_S) if start is None else start
    if since >= until:
        raise InvalidRequest("from must be before to.")
    minutes = (until - since) / timedelta(minutes=1)
    width = bucket or (_INTERVAL_MINUTES[interval] if interval else None)
    if width is None:
        width = next((w for w in WIDTHS_MIN if minutes / w <= TARGET_POINTS), WIDTHS_MIN[-1])
    if minutes / width > MAX_POINTS:
        raise InvalidRequest(
            f"The window has {minutes / width:,.0f} points, more than the maximum of {MAX_POINTS:,}. "
            "Ask for a shorter window or wider points (bucket, in minutes)."
        )
    return TimeWindow(since, until, timedelta(minutes=width))


WindowParameter = Annotated[TimeWindow, Depends(parse_window)]
"""The window of a route, from its parameters `from`, `to`, `interval` and `bucket`."""


def ratio(amount: float | None, over: float | None, digits: int = 3) -> float | None:
    """The rounded quotient; None if a value is missing or the divisor is 0."""
    return round(amount / over, digits) if amount is not None and over else None
