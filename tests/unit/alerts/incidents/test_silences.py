"""Silences: scope, times, and recurrence over midnight and clock changes."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from penstock.alerts.incidents.recurrence import Day, Recurrence, is_within, parse_every
from penstock.alerts.incidents.silences import parse_silence, silence_check, silence_state
from penstock.alerts.rules.alert_rule import AlertRule, RuleType, Severity
from penstock.errors import InvalidRequest

NIGHTS = parse_every("mon-fri 22:00-06:00", "Europe/Berlin")


def at(text: str, zone: str = "Europe/Berlin", *, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


@pytest.mark.parametrize(
    ("moment", "is_silent"),
    [
        ("2026-03-02 21:59:59", False),  # Monday
        ("2026-03-02 22:00", True),
        ("2026-03-03 05:59:59", True),
        ("2026-03-03 06:00", False),
        ("2026-03-07 05:00", True),  # Saturday: the night of Friday
        ("2026-03-07 23:00", False),
        ("2026-03-02 05:00", False),  # Monday: the night of Sunday
    ],
)
def test_a_night_belongs_to_the_day_on_which_it_starts(moment: str, is_silent: bool) -> None:
    assert is_within(NIGHTS, at(moment)) is is_silent


@pytest.mark.parametrize(
    ("moment", "is_silent"),
    [("2026-03-02 00:00", True), ("2026-03-02 23:59", True), ("2026-03-03 00:00", False)],
)
def test_equal_times_are_a_whole_day(moment: str, is_silent: bool) -> None:
    assert is_within(parse_every("mon 00:00-00:00", "Europe/Berlin"), at(moment)) is is_silent


@pytest.mark.parametrize(
    ("utc", "is_silent"),
    [
        ("2026-03-28 20:59", False),  # winter: 22:00 in Berlin is 21:00 UTC
        ("2026-03-28 21:00", True),
        ("2026-03-29 03:59", True),  # summer since 01:00 UTC: 06:00 is 04:00 UTC
        ("2026-03-29 04:00", False),
        ("2026-10-24 19:59", False),  # summer
        ("2026-10-24 20:00", True),
        ("2026-10-25 04:59", True),  # winter since 01:00 UTC
        ("2026-10-25 05:00", False),
    ],
)
def test_a_night_follows_the_local_clock_over_a_change(utc: str, is_silent: bool) -> None:
    nights = parse_every("daily 22:00-06:00", "Europe/Berlin")
    assert is_within(nights, at(utc, "UTC")) is is_silent


@pytest.mark.parametrize(
    ("utc", "is_silent"),
    [
        ("2026-10-24 23:59", False),
        ("2026-10-25 00:00", True),  # 02:00 for the first time
        ("2026-10-25 00:45", True),  # between the two spans of local time
        ("2026-10-25 01:29", True),  # 02:29 for the second time
        ("2026-10-25 01:30", False),
        ("2026-03-29 01:00", True),  # 02:00 to 02:30 do not exist: 03:00 to 03:30
        ("2026-03-29 01:29", True),
        ("2026-03-29 01:30", False),
    ],
)
def test_times_that_occur_twice_or_never(utc: str, is_silent: bool) -> None:
    spans = parse_every("daily 02:00-02:30", "Europe/Berlin")
    assert is_within(spans, at(utc, "UTC")) is is_silent


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("fri-mon 22:00-06:00", "mon fri sat sun"),
        ("sat,sun 00:00-00:00", "sat sun"),
        ("Mon 22:00 - 06:00", "mon"),
        ("daily 02:00-03:00", "mon tue wed thu fri sat sun"),
    ],
)
def test_days_are_read(text: str, days: str) -> None:
    assert " ".join(parse_every(text, "UTC").days) == days


@pytest.mark.parametrize("text", ["", "22:00-06:00", "mon 25:00-06:00", "foo 22:00-06:00", "mon- 1-2"])
def test_a_time_that_is_not_valid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"form|day"):
        parse_every(text, "UTC")


def test_a_silence_is_scheduled_then_active_then_ended() -> None:
    silence = parse_silence({"startsAt": "2026-03-02T10:00:00+01:00", "endsAt": "2026-03-02T10:00:00Z"})
    states = [silence_state(silence, at(f"2026-03-02 {time}", "UTC")) for time in ("08:59", "09:00", "10:00")]
    assert states == ["scheduled", "active", "ended"]


def test_a_recurring_silence_is_scheduled_between_its_times() -> None:
    recurrence = {"days": ["mon"], "from": "22:00", "to": "06:00", "timeZone": "Europe/Berlin"}
    silence = parse_silence({"recurrence": recurrence, "endsAt": "2026-03-10T00:00:00Z"})
    assert silence.recurrence == Recurrence(
        days=(Day.MONDAY,), start="22:00", end="06:00", time_zone="Europe/Berlin"
    )
    moments = ("2026-03-02 12:00", "2026-03-02 23:00", "2026-03-16 23:00")
    assert [silence_state(silence, at(moment)) for moment in moments] == ["scheduled", "active", "ended"]


@pytest.mark.parametrize(
    ("fields", "is_silent"),
    [
        ({}, True),
        ({"queue": "orders"}, True),
        ({"queue": "ord*"}, True),
        ({"queue": "mails"}, False),
        ({"rule": "backlog", "severity": "critical"}, True),
        ({"rule": "other"}, False),
        ({"severity": "info"}, False),
        ({"labels": {"team": "shop"}}, True),
        ({"labels": {"team": "other"}}, False),
        ({"labels": {"team": "shop", "region": "eu"}}, False),
        ({"queue": "orders", "rule": "other"}, False),
    ],
)
def test_all_fields_of_the_scope_must_match(fields: dict[str, object], is_silent: bool) -> None:
    rule = AlertRule(
        name="backlog", type=RuleType.BACKLOG, severity=Severity.CRITICAL, labels={"team": "shop"}
    )
    assert silence_check([parse_silence(fields)], rule)("orders") is is_silent


@pytest.mark.parametrize(
    "fields",
    [
        {"queue": ""},
        {"queue": "a\0"},
        {"queues": "orders"},
        {"startsAt": "2026-03-02T10:00:00"},
        {"startsAt": "2026-03-02T10:00:00Z", "endsAt": "2026-03-02T10:00:00Z"},
        {"endsAt": "9999-12-31T23:59:59Z"},
        {"recurrence": {"days": [], "from": "22:00", "to": "06:00"}},
        {"recurrence": {"days": ["mon"], "from": "24:00", "to": "06:00"}},
        {"recurrence": {"days": ["mon"], "from": "22:00", "to": "06:00", "timeZone": "Europe/Nowhere"}},
        {"recurrence": {"days": ["mon"], "from": "22:00", "to": "06:00", "timeZone": "../etc/passwd"}},
    ],
)
def test_a_silence_that_is_not_valid_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        parse_silence(fields)
