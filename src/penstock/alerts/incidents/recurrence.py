"""Times that recur every week, in the local time of an IANA time zone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from enum import StrEnum
from typing import Annotated
from zoneinfo import ZoneInfo

import msgspec

from penstock.body_error_text import TIME_OF_DAY_PATTERN


class Day(StrEnum):
    MONDAY = "mon"
    TUESDAY = "tue"
    WEDNESDAY = "wed"
    THURSDAY = "thu"
    FRIDAY = "fri"
    SATURDAY = "sat"
    SUNDAY = "sun"


DAYS = tuple(Day)
DAILY = "daily"

LocalTime = Annotated[str, msgspec.Meta(pattern=TIME_OF_DAY_PATTERN)]

EVERY_FORMS = "'mon-fri 22:00-06:00', 'sat,sun 00:00-00:00' or 'daily 02:00-03:00'"

_TIME = TIME_OF_DAY_PATTERN.strip("^$")
_EVERY = re.compile(rf"\s*(?P<days>[a-z,-]+)\s+(?P<start>{_TIME})\s*-\s*(?P<end>{_TIME})\s*")


class Recurrence(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A span of local time on some days of the week.

    A span whose end is not after its start ends on the next day: 22:00 to 06:00 is a night, 00:00 to 00:00 a
    whole day. `days` are the days on which it starts.
    """

    days: Annotated[tuple[Day, ...], msgspec.Meta(min_length=1, max_length=7)]
    start: LocalTime = msgspec.field(name="from")
    end: LocalTime = msgspec.field(name="to")
    time_zone: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] = "UTC"
    """IANA name, such as Europe/Berlin."""


def is_within(recurrence: Recurrence, time_s: float) -> bool:
    """Return whether the time is in the recurrence's span of that day, or of the day before."""
    zone = ZoneInfo(recurrence.time_zone)
    today = datetime.fromtimestamp(time_s, zone).date()
    # The day before too: its span may end today.
    return any(start_s <= time_s < end_s for start_s, end_s in _spans(recurrence, zone, today))


def _spans(recurrence: Recurrence, zone: ZoneInfo, today: date) -> Iterator[tuple[float, float]]:
    """Yield the spans that start yesterday or today, in seconds since the epoch.

    A clock change does not cut a span: of a local time that occurs twice, the first starts and the second
    ends it. A local time that a clock change skips counts as if the clock had not changed yet.
    """
    start, end = time.fromisoformat(recurrence.start), time.fromisoformat(recurrence.end)
    for day in (today - timedelta(days=1), today):
        if DAYS[day.weekday()] in recurrence.days:
            last_day = day if start < end else day + timedelta(days=1)
            ends = [datetime.combine(last_day, end.replace(fold=fold), zone).timestamp() for fold in (0, 1)]
            yield datetime.combine(day, start, zone).timestamp(), max(ends)


def parse_every(text: str, time_zone: str) -> Recurrence:
    """Convert `mon-fri 22:00-06:00`, `sat,sun 00:00-00:00` or `daily 02:00-03:00`. Raises ValueError."""
    match = _EVERY.fullmatch(text.lower())
    if match is None:
        raise ValueError(
            "it is not of the form 'mon-fri 22:00-06:00', 'sat,sun 00:00-00:00' or 'daily 02:00-03:00'"
        )
    return Recurrence(
        days=tuple(_parse_days(match["days"])), start=match["start"], end=match["end"], time_zone=time_zone
    )


def _parse_days(text: str) -> list[Day]:
    if text == DAILY:
        return list(DAYS)
    days: list[Day] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        start, end = _parse_day(first), _parse_day(last or first)
        count = (DAYS.index(end) - DAYS.index(start)) % len(DAYS) + 1
        days += [DAYS[(DAYS.index(start) + number) % len(DAYS)] for number in range(count)]
    return sorted(set(days), key=DAYS.index)


def _parse_day(text: str) -> Day:
    if text not in DAYS:
        raise ValueError(f"{text!r} is no day. Days are {', '.join(DAYS)}, and {DAILY} for all of them")
    return Day(text)
