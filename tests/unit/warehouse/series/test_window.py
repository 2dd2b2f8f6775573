"""Windows: the tier and the points that a request gets."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.errors import InvalidRequest
from penstock.warehouse.series.window import resolve_window

NOW_S = datetime(2026, 11, 15, 10, 0, 3, tzinfo=UTC).timestamp()


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("period", "tier", "resolution", "points"),
    [
        ("30m", "5s", "5s", 360),
        ("2h", "5s", "5s", 1_440),
        ("24h", "1m", "1m", 1_440),
        ("7d", "1m", "1m", 10_080),
        ("30d", "1h", "1h", 720),
        ("400d", "1h", "1h", 9_600),
        ("1s", "5s", "5s", 1),
        ("90s", "5s", "5s", 18),
        ("1w", "1m", "1m", 10_080),
    ],
)
def test_the_period_chooses_the_tier(period: str, tier: str, resolution: str, points: int) -> None:
    window = resolve_window(period=period, now_s=NOW_S)
    assert (window.tier.name, window.resolution, len(window.buckets)) == (tier, resolution, points)
    assert window.start_s % window.step_s == 0
    assert window.buckets[-1] <= NOW_S < window.end_s


@pytest.mark.parametrize(
    "period", ["", "30", "m", "30 m", "-5m", "0m", "1.5h", "30M", "5y", "401d", "９m", "1h30m"]
)
def test_an_invalid_period_is_rejected_with_the_accepted_forms(period: str) -> None:
    with pytest.raises(InvalidRequest) as rejected:
        resolve_window(period=period or " ", now_s=NOW_S)
    assert rejected.value.status == 422
    assert "30m, 2h, 24h, 7d or 30d" in rejected.value.detail


def test_an_old_window_is_read_from_a_tier_that_still_has_it() -> None:
    window = resolve_window(start=utc("2026-11-10T08:00"), end=utc("2026-11-10T09:00"), now_s=NOW_S)
    assert (window.tier.name, window.resolution, len(window.buckets)) == ("1m", "1m", 60)
    window = resolve_window(start=utc("2026-08-01T08:00"), end=utc("2026-08-01T09:30"), now_s=NOW_S)
    assert (window.tier.name, window.resolution, len(window.buckets)) == ("1h", "1h", 2)


def test_no_point_starts_at_the_requested_end() -> None:
    window = resolve_window(start=utc("2026-11-15T09:00"), end=utc("2026-11-15T09:30"), now_s=NOW_S)
    assert len(window.buckets) == 360
    assert window.end_s == utc("2026-11-15T09:30").timestamp()


def test_an_end_in_the_future_means_now() -> None:
    window = resolve_window(start=utc("2026-11-15T09:59"), end=utc("2026-11-16T00:00"), now_s=NOW_S)
    assert window.buckets[-1] == utc("2026-11-15T10:00:00").timestamp()


@pytest.mark.parametrize(
    ("period", "resolution", "tier", "points"),
    [
        ("2h", "1m", "1m", 120),
        ("24h", "15m", "1m", 96),
        ("30d", "1d", "1h", 30),
        ("1h", "10s", "5s", 360),
        ("10m", "1h", "1h", 1),
    ],
)
def test_a_resolution_can_be_chosen(period: str, resolution: str, tier: str, points: int) -> None:
    window = resolve_window(period=period, resolution=resolution, now_s=NOW_S)
    assert (window.tier.name, len(window.buckets)) == (tier, points)


@pytest.mark.parametrize(
    ("period", "resolution", "message"),
    [
        ("30m", "3s", "multiple of 5s"),
        ("30m", "fine", "multiple of 5s"),
        ("7d", "5s", "kept for 2 days"),
        ("60d", "1m", "kept for 31 days"),
        ("20h", "5s", "at most 11000"),
    ],
)
def test_an_unavailable_resolution_is_rejected(period: str, resolution: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        resolve_window(period=period, resolution=resolution, now_s=NOW_S)


def test_a_window_that_ends_before_it_starts_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="before its end"):
        resolve_window(start=utc("2026-11-15T09:00"), end=utc("2026-11-15T08:00"), now_s=NOW_S)
    with pytest.raises(InvalidRequest, match="before its end"):
        resolve_window(start=utc("2026-11-16T09:00"), now_s=NOW_S)
