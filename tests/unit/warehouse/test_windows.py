from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.errors import InvalidRequest
from penstock.warehouse.series.window import window

NOW = datetime(2026, 11, 15, 10, 0, 3, tzinfo=UTC).timestamp()


def at(text: str) -> datetime:
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
    found = window(period=period, now_s=NOW)
    assert (found.tier.name, found.resolution, len(found.buckets)) == (tier, resolution, points)
    assert found.start_s % found.step_s == 0
    assert found.buckets[-1] <= NOW < found.end_s


@pytest.mark.parametrize(
    "period", ["", "30", "m", "30 m", "-5m", "0m", "1.5h", "30M", "5y", "401d", "９m", "1h30m"]
)
def test_a_period_that_is_none_is_refused_with_the_accepted_forms(period: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        window(period=period or " ", now_s=NOW)
    assert refused.value.status == 422
    assert "30m, 2h, 24h, 7d or 30d" in refused.value.detail


def test_an_old_window_goes_to_a_tier_that_still_has_it() -> None:
    found = window(start=at("2026-11-10T08:00"), end=at("2026-11-10T09:00"), now_s=NOW)
    assert (found.tier.name, found.resolution, len(found.buckets)) == ("1m", "1m", 60)
    found = window(start=at("2026-08-01T08:00"), end=at("2026-08-01T09:30"), now_s=NOW)
    assert (found.tier.name, found.resolution, len(found.buckets)) == ("1h", "1h", 2)


def test_a_given_end_is_not_the_start_of_another_point() -> None:
    found = window(start=at("2026-11-15T09:00"), end=at("2026-11-15T09:30"), now_s=NOW)
    assert len(found.buckets) == 360
    assert found.end_s == at("2026-11-15T09:30").timestamp()


def test_an_end_in_the_future_means_now() -> None:
    found = window(start=at("2026-11-15T09:59"), end=at("2026-11-16T00:00"), now_s=NOW)
    assert found.buckets[-1] == at("2026-11-15T10:00:00").timestamp()


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
    found = window(period=period, resolution=resolution, now_s=NOW)
    assert (found.tier.name, len(found.buckets)) == (tier, points)


@pytest.mark.parametrize(
    ("period", "resolution", "words"),
    [
        ("30m", "3s", "multiple of 5s"),
        ("30m", "fine", "multiple of 5s"),
        ("7d", "5s", "kept for 2 days"),
        ("60d", "1m", "kept for 31 days"),
        ("20h", "5s", "at most 11000"),
    ],
)
def test_a_resolution_that_cannot_be_had_is_refused(period: str, resolution: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        window(period=period, resolution=resolution, now_s=NOW)


def test_a_window_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="before its end"):
        window(start=at("2026-11-15T09:00"), end=at("2026-11-15T08:00"), now_s=NOW)
    with pytest.raises(InvalidRequest, match="before its end"):
        window(start=at("2026-11-16T09:00"), now_s=NOW)
