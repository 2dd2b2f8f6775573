"""The last two minutes of a broker process, second by second, in memory. Minute rows hold the longer past."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

MAX_SECONDS = 120


class ProcessSecond(NamedTuple):
    """What a broker process measured in one second. Gauges are those at its end."""

    time_s: int
    """Seconds since the epoch."""
    loop_lag_ms: float
    """The highest lag of the event loop."""
    cpu_percent: float
    busy_connections: int
    connection_waiters: int
    pending_requests: int
    """Requests that waited for their batch."""
    batches: int
    batch_requests: int
    """Requests in these batches."""
    resident_bytes: int


class RecentSeconds:
    """Keeps the newest seconds."""

    def __init__(self) -> None:
        self._seconds: deque[ProcessSecond] = deque(maxlen=MAX_SECONDS)

    def add(self, second: ProcessSecond) -> None:
        self._seconds.append(second)

    def columns(self) -> dict[str, list[float]]:
        """Return one list per field of `ProcessSecond`, the oldest second first."""
        columns = zip(*self._seconds, strict=True) if self._seconds else [()] * len(ProcessSecond._fields)
        return dict(zip(ProcessSecond._fields, map(list, columns), strict=True))
