"""The period that a report covers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.errors import InvalidRequest
from penstock.warehouse.tiers import HOUR, MINUTE, Tier

HOUR_S, DAY_S = 3_600, 86_400
_UNITS = {"h": HOUR_S, "d": DAY_S, "w": 7 * DAY_S}
_LENGTH = re.compile(r"([1-9][0-9]{0,4})([hdw])")


@dataclass(frozen=True, slots=True)
class Period:
    """The time from `start_s`, the start of an hour, until before `end_s`, the end of an hour or now.

    Whole hours, because digests and the hours of the week have no finer resolution.
    """

    start_s: int
    end_s: int
    now_s: int

    @property
    def tier(self) -> Tier:
        """The finest tier that retains the whole period: peaks of different widths are not comparable."""
        return MINUTE if self.now_s - self.start_s <= MINUTE.retention_s else HOUR

    @property
    def days(self) -> range:
        """The starts of the complete days in the period. An incomplete day has no daily peak."""
        first = -(-self.start_s // DAY_S) * DAY_S
        return range(first, self.end_s - DAY_S + 1, DAY_S)


def parse_period(
    length: str = "30d", start: datetime | None = None, end: datetime | None = None, *, now_s: float
) -> Period:
    """Return the requested period; raises InvalidRequest with the accepted formats.

    `start` overrides `length`, which counts back from `end` or now. A length in days or weeks starts at
    midnight UTC, so that it contains that many complete days.
    """
    end_s = min(-(-_seconds(end) // HOUR_S) * HOUR_S, int(now_s)) if end is not None else int(now_s)
    if start is not None:
        start_s = _seconds(start) // HOUR_S * HOUR_S
    else:
        match = _LENGTH.fullmatch(length)
        if match is None:
            raise InvalidRequest(
                f"{length!r} is not a period. Use a whole number with h, d or w, such as 48h, 30d or 12w"
            )
        step = HOUR_S if match[2] == "h" else DAY_S
        start_s = (end_s - int(match[1]) * _UNITS[match[2]]) // step * step
    if start_s >= end_s:
        raise InvalidRequest("The period must start before it ends, and in the past")
    return Period(start_s, end_s, int(now_s))


def parse_time(text: str) -> datetime:
    """Parse a date or time in ISO 8601, in UTC unless it has a zone. Raises InvalidRequest."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            f"{text!r} is not a date. Use a format such as 2026-11-01 or 2026-11-01T08:00"
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _seconds(time: datetime) -> int:
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
