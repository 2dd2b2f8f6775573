"""The span of time a report speaks about."""

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
    """From `start_s`, which begins an hour, until before `end_s`, which ends one or is now.

    Whole hours, because digests and the hours of the week cannot be cut finer.
    """

    start_s: int
    end_s: int
    now_s: int

    @property
    def tier(self) -> Tier:
        """The finest tier that still holds the whole period: peaks of different widths do not compare."""
        return MINUTE if self.now_s - self.start_s <= MINUTE.retention_s else HOUR

    @property
    def days(self) -> range:
        """The starts of the days that lie in it whole. A part of a day has no peak of a day."""
        first = -(-self.start_s // DAY_S) * DAY_S
        return range(first, self.end_s - DAY_S + 1, DAY_S)


def read_period(
    length: str = "30d", start: datetime | None = None, end: datetime | None = None, *, now_s: float
) -> Period:
    """The period asked for; raises InvalidRequest saying what would be accepted.

    `start` wins over `length`, which counts back from `end` or now. A length in days or weeks starts at
    midnight UTC, so that it holds as many whole days as it says.
    """
    until = min(-(-_seconds(end) // HOUR_S) * HOUR_S, int(now_s)) if end is not None else int(now_s)
    if start is not None:
        since = _seconds(start) // HOUR_S * HOUR_S
    else:
        matched = _LENGTH.fullmatch(length)
        if matched is None:
            raise InvalidRequest(
                f"{length!r} is no period: write a whole number with h, d or w, such as 48h, 30d or 12w"
            )
        step = HOUR_S if matched[2] == "h" else DAY_S
        since = (until - int(matched[1]) * _UNITS[matched[2]]) // step * step
    if since >= until:
        raise InvalidRequest("the period must start before it ends, and in the past")
    return Period(since, until, int(now_s))


def read_moment(text: str) -> datetime:
    """A date or a time as ISO 8601 has it; without a zone it is UTC. Raises InvalidRequest."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(f"{text!r} is no date: write 2026-11-01 or 2026-11-01T08:00") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _seconds(moment: datetime) -> int:
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
