"""Percentiles that are written down: the same numbers as those of the digests, or not used."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from penstock.definitions import QUEUE
from penstock.model import DEFAULT_SCOPE
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.series import points
from penstock.warehouse.series.closed_percentiles import write_percentiles
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.series.queue_series import environment_series, queue_series
from penstock.warehouse.tiers import HOUR, MINUTE, Tier
from tests.integration.warehouse.landing import land, landing_row

NOW = int(datetime.now(UTC).timestamp()) // 3600 * 3600 - 86_400 + 1800


class Watched(Warehouse):
    """Keeps what it was asked about points."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked: list[str] = []

    def query_columns(self, sql: str, parameters: Mapping[str, Any] | None = None) -> dict[str, Column]:
        if "GROUP BY" in sql or "LIMIT" in sql:
            self.asked.append(sql)
        return super().query_columns(sql, parameters)

    @property
    def digests_read(self) -> int:
        return sum("_digest" in sql for sql in self.asked)


@pytest.fixture
def queue() -> str:
    return f"q-{uuid4().hex[:8]}"


@pytest.fixture
def watched(warehouse: Warehouse) -> Iterator[Watched]:
    opened = Watched(warehouse.url)
    yield opened
    opened.close()


def measured(warehouse: Warehouse, queue: str, group: str = "") -> None:
    """Waits and run times in three inserts, so that many buckets lie in several rows."""
    chance = random.Random(7)
    for _ in range(3):
        rows = [
            landing_row(
                NOW - 60 * minute,
                queue=queue,
                group=group,
                wait_ms=tuple(chance.randrange(10**6) for _ in range(chance.randrange(1, 30))),
                run_ms=tuple(chance.randrange(100) for _ in range(chance.randrange(4))),
                depth=minute,
            )
            for minute in range(2, 90)
            if chance.random() < 0.7
        ]
        land(warehouse, *rows)


def write(warehouse: Warehouse, tier: Tier = MINUTE) -> None:
    write_percentiles(warehouse, QUEUE, tier, NOW // 3600 * 3600 - 4 * 3600, NOW // 3600 * 3600 + 3600)


END = datetime.fromtimestamp(NOW, UTC)
LATER = NOW + 7200
"""When the whole window has passed, so that nothing of it is expected to be open."""


def series(warehouse: Warehouse, queue: str, period: str = "24h", **asked: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = queue_series(
        warehouse, DEFAULT_SCOPE, queue, period=period, end=END, now=LATER, **asked
    )["timeseries"]
    return found


@pytest.mark.parametrize(("period", "tier"), [("24h", MINUTE), ("30d", HOUR)])
def test_they_are_those_of_the_digests_and_no_digest_is_read(
    watched: Watched, queue: str, period: str, tier: Tier
) -> None:
    measured(watched, queue)
    merged = series(watched, queue, period)
    assert watched.digests_read == 1
    assert sum(point["latency"]["p99_wait_ms"] is not None for point in merged) >= (
        80 if tier == MINUTE else 2
    )
    write(watched, tier)
    assert series(watched, queue, period) == merged
    assert watched.digests_read == 1
    watched.command(f"OPTIMIZE TABLE queue_{tier.name} FINAL")
    assert series(watched, queue, period) == merged
    assert watched.digests_read == 1


def test_the_environment_has_its_own(watched: Watched, queue: str) -> None:
    measured(watched, queue)
    merged = environment_series(watched, DEFAULT_SCOPE, period="24h", end=END, now=LATER)
    write(watched)
    read = watched.digests_read
    assert environment_series(watched, DEFAULT_SCOPE, period="24h", end=END, now=LATER) == merged
    assert watched.digests_read == read


def test_those_of_the_open_minute_are_read_beside_the_rest(watched: Watched, queue: str) -> None:
    land(
        watched,
        landing_row(NOW - 600, queue=queue, wait_ms=(5,)),
        landing_row(NOW, queue=queue, wait_ms=(7, 9)),
    )
    write_percentiles(watched, QUEUE, MINUTE, NOW - 3600, NOW // 60 * 60)
    found = queue_series(watched, DEFAULT_SCOPE, queue, period="24h", now=NOW)["timeseries"]
    known = [p["latency"]["p99_wait_ms"] for p in found if p["latency"]["p99_wait_ms"] is not None]
    assert (known, watched.digests_read, len(watched.asked)) == ([5.0, 9.0], 1, 2)


def test_an_event_that_comes_later_is_part_of_them(watched: Watched, queue: str) -> None:
    for wait_ms in (10, 20, 30):
        land(watched, landing_row(NOW - 600, queue=queue, wait_ms=(wait_ms,)))
        land(watched, landing_row(NOW - 900, queue=queue, wait_ms=(5,)))
    write(watched)
    land(watched, landing_row(NOW - 600, queue=queue, wait_ms=(9_000,) * 20))
    found = {point["timestamp"]: point["latency"]["p95_wait_ms"] for point in series(watched, queue)}
    assert sorted(value for value in found.values() if value is not None) == [5.0, 9_000.0]
    assert watched.digests_read == 1
    assert "IN (toDateTime" in watched.asked[-1]
    write(watched)
    again = {point["timestamp"]: point["latency"]["p95_wait_ms"] for point in series(watched, queue)}
    assert (again, watched.digests_read) == (found, 1)


def test_those_of_two_groups_are_merged_and_each_group_has_its_own(watched: Watched, queue: str) -> None:
    for group, wait_ms in (("a", 10), ("b", 1_000)):
        land(watched, landing_row(NOW - 600, queue=queue, group=group, wait_ms=(wait_ms,) * 10))
    write(watched)

    def highest(group: str | None) -> list[float]:
        found = series(watched, queue, group=group)
        return [p["latency"]["p99_wait_ms"] for p in found if p["latency"]["p99_wait_ms"] is not None]

    assert (highest("a"), highest("b"), watched.digests_read) == ([10.0], [1_000.0], 0)
    assert (highest(None), watched.digests_read) == ([1_000.0], 1)


def test_wider_points_are_merged_from_digests(watched: Watched, queue: str) -> None:
    for minute, wait_ms in enumerate((10, 20, 5_000)):
        land(watched, landing_row(NOW // 900 * 900 - 900 + 60 * minute, queue=queue, wait_ms=(wait_ms,) * 10))
    write(watched)
    found = series(watched, queue, resolution="15m")
    values = [p["latency"] for p in found if p["latency"]["p50_wait_ms"] is not None]
    assert [(value["p50_wait_ms"], value["p99_wait_ms"]) for value in values] == [(20.0, 5_000.0)]


def test_more_than_can_be_named_are_read_from_the_first_to_the_last(
    watched: Watched, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(watched, queue)
    named = series(watched, queue)
    monkeypatch.setattr(points, "MOST_NAMED", 10)
    assert series(watched, queue) == named
    assert "IN (toDateTime" in watched.asked[1]
    assert "IN (toDateTime" not in watched.asked[3]


def test_writing_again_adds_nothing(warehouse: Warehouse, queue: str) -> None:
    measured(warehouse, queue)

    def rows() -> int:
        [row] = warehouse.query(
            "SELECT sum(wait_ms_percentiles > 0) AS written, sum(events) AS events FROM queue_1m "
            "WHERE queue = {queue:String}",
            {"queue": queue},
        )
        assert row["events"] > 100
        return int(row["written"])

    write(warehouse)
    before = rows()
    assert before > 80
    write(warehouse)
    assert rows() == before
