"""A queue's series from a real ClickHouse."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from penstock.errors import InvalidRequest, WarehouseUnavailable
from penstock.model import DEFAULT_SCOPE, Scope
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.series import points
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.series.queue_series import known_queues, queue_is_known, queue_series
from penstock.warehouse.series.row_queries import as_they_lie
from tests.integration.warehouse.landing import land, landing_row

NOW = datetime.now(UTC).replace(hour=10, minute=20, second=3, microsecond=0).timestamp()
if datetime.now(UTC).timestamp() < NOW:
    NOW -= 86_400


class Counting(Warehouse):
    """Knows how often it was asked about a queue."""

    asked = 0

    def query_columns(self, sql: str, parameters: Mapping[str, Any] | None = None) -> dict[str, Column]:
        self.asked += "queue" in (parameters or {})
        return super().query_columns(sql, parameters)


@pytest.fixture
def queue() -> str:
    return f"orders:{uuid4().hex[:8]} 'x' \\ \t é"


def by_time(series: dict[str, Any]) -> dict[float, dict[str, Any]]:
    return {datetime.fromisoformat(point["timestamp"]).timestamp(): point for point in series["timeseries"]}


def test_counters_samples_and_gauges_come_out_as_they_went_in(warehouse: Warehouse, queue: str) -> None:
    at = NOW - 63
    land(
        warehouse,
        landing_row(at, queue=queue, enqueued=3, depth=(9, 4), delayed=(7, 5), limit=10, oldest_age_ms=1_500),
        landing_row(
            at,
            queue=queue,
            group="billing",
            dequeued=2,
            acked=2,
            nacked=1,
            dead=1,
            expired=1,
            wait_ms=(0, 40, 110),
            run_ms=(30,),
        ),
        landing_row(at, queue=queue, running=8),
    )
    series = queue_series(warehouse, DEFAULT_SCOPE, queue, now=NOW)
    assert (series["queue"], series["resolution"], series["tier"]) == (queue, "5s", "5s")
    assert len(series["timeseries"]) == 360
    assert by_time(series)[at // 5 * 5] == {
        "timestamp": datetime.fromtimestamp(at // 5 * 5, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "throughput": {"enqueued": 3, "dequeued": 2, "completed": 2},
        "queue_depth": {"max": 9, "last": 4},
        "delayed": {"max": 7, "last": 5},
        "latency": {
            "avg_wait_ms": 50.0,
            "p50_wait_ms": 40.0,
            "p95_wait_ms": 110.0,
            "p99_wait_ms": 110.0,
            "max_age_ms": 1_500,
        },
        "runtime": {"avg_ms": 30.0, "p95_ms": 30.0},
        "concurrency": {"max": 8, "limit": 10, "utilization_pct": 80.0},
        "failures": {"nack": 1, "dlq": 1, "ttl_expired": 1},
        "carried": False,
        "complete": None,
    }


def test_points_without_events_have_zero_counts_and_carried_gauges(warehouse: Warehouse, queue: str) -> None:
    at = NOW // 5 * 5 - 300
    land(warehouse, landing_row(at + 1, queue=queue, enqueued=5, depth=(500, 2), oldest_age_ms=1_000))
    points = queue_series(warehouse, DEFAULT_SCOPE, queue, period="10m", now=NOW)["timeseries"]
    before = [point for point in points if not point["carried"] and point["queue_depth"]["last"] is None]
    carried = [point for point in points if point["carried"]]
    assert (len(before), len(carried), len(points)) == (59, 60, 120)
    assert {point["queue_depth"]["max"] for point in carried} == {2}
    assert all(point["throughput"] == {"enqueued": 0, "dequeued": 0, "completed": 0} for point in carried)
    ages = [point["latency"]["max_age_ms"] for point in carried]
    assert ages[0] == 1_000 + 9_000
    assert ages[1] - ages[0] == 5_000
    assert ages[-1] == 1_000 + int((NOW - (at + 1)) * 1000)


def test_an_emptied_queue_does_not_age(warehouse: Warehouse, queue: str) -> None:
    land(warehouse, landing_row(NOW - 100, queue=queue, depth=(7, 0), oldest_age_ms=(9_000, 0)))
    points = queue_series(warehouse, DEFAULT_SCOPE, queue, period="5m", now=NOW)["timeseries"]
    assert points[-1]["queue_depth"] == {"max": 0, "last": 0}
    assert points[-1]["latency"]["max_age_ms"] == 0
    assert points[-1]["carried"]


def test_the_last_value_is_the_newest_whatever_the_order_of_arrival(warehouse: Warehouse, queue: str) -> None:
    at = NOW // 5 * 5 - 60
    land(warehouse, landing_row(at + 3, queue=queue, depth=1))
    land(warehouse, landing_row(at + 1, queue=queue, depth=8))
    point = by_time(queue_series(warehouse, DEFAULT_SCOPE, queue, now=NOW))[at]
    assert point["queue_depth"] == {"max": 8, "last": 1}


@pytest.mark.parametrize("ago_s", [31 * 60, 3 * 3600, 40 * 3600, 5 * 86_400, 200 * 86_400])
def test_gauges_are_seeded_from_before_the_window(warehouse: Warehouse, queue: str, ago_s: int) -> None:
    land(warehouse, landing_row(NOW - ago_s - 600, queue=queue, depth=99))
    land(warehouse, landing_row(NOW - ago_s, queue=queue, depth=(50, 3), oldest_age_ms=0))
    first = queue_series(warehouse, DEFAULT_SCOPE, queue, period="30m", now=NOW)["timeseries"][0]
    assert first["queue_depth"] == {"max": 3, "last": 3}
    assert first["carried"]
    assert abs(first["latency"]["max_age_ms"] - (ago_s - 1800) * 1000) <= 10_000


def test_delayed_tasks_are_carried_and_unknown_where_nobody_tells_them(
    warehouse: Warehouse, queue: str
) -> None:
    land(warehouse, landing_row(NOW - 600, queue=queue, depth=1, delayed=(12, 9)))
    land(warehouse, landing_row(NOW - 60, queue=queue, depth=2))
    points = queue_series(warehouse, DEFAULT_SCOPE, queue, period="5m", now=NOW, fields=["delayed"])
    assert all(point["delayed"] == {"max": 9, "last": 9} for point in points["timeseries"])
    of_messages = queue + " durable"
    land(warehouse, landing_row(NOW - 60, queue=of_messages, depth=2, running=0))
    point = queue_series(warehouse, DEFAULT_SCOPE, of_messages, now=NOW)["timeseries"][-1]
    assert (point["queue_depth"]["last"], point["delayed"]) == (2, {"max": None, "last": None})


def test_a_seed_is_found_when_the_fine_tiers_have_forgotten_it(warehouse: Warehouse, queue: str) -> None:
    land(warehouse, landing_row(NOW - 3 * 86_400, queue=queue, depth=6))
    for table in ("queue_5s", "queue_1m"):
        warehouse.command(f"TRUNCATE TABLE {table}")
    first = queue_series(warehouse, DEFAULT_SCOPE, queue, now=NOW)["timeseries"][0]
    assert first["queue_depth"] == {"max": 6, "last": 6}


def test_a_gauge_that_others_outlived_is_gone_and_not_looked_for_every_time(
    warehouse: Warehouse, queue: str
) -> None:
    land(warehouse, landing_row(NOW - 5 * 86_400, queue=queue, depth=1, limit=10))
    land(warehouse, landing_row(NOW - 1_900, queue=queue, depth=8, running=4, oldest_age_ms=0))
    counting = Counting(warehouse.url)
    for queries in (2, 1):
        counting.asked = 0
        first = queue_series(counting, DEFAULT_SCOPE, queue, now=NOW)["timeseries"][0]
        assert (first["queue_depth"]["last"], counting.asked) == (8, queries)
        assert first["concurrency"]["limit"] is None
    land(warehouse, landing_row(NOW - 60, queue=queue, limit=7))
    assert (
        queue_series(counting, DEFAULT_SCOPE, queue, now=NOW)["timeseries"][-1]["concurrency"]["limit"] == 7
    )
    counting.close()


def test_a_young_queue_is_not_looked_for_before_its_time_with_every_series(
    warehouse: Warehouse, queue: str
) -> None:
    counting = Counting(warehouse.url)
    land(warehouse, landing_row(NOW - 120, queue=queue, depth=8))
    # The points, the newest percentiles, the last two days and everything before those.
    for period, queries in [("24h", 4), ("24h", 2), ("60d", 3), ("60d", 2)]:
        counting.asked = 0
        point = queue_series(counting, DEFAULT_SCOPE, queue, period=period, now=NOW)["timeseries"][0]
        assert (point["queue_depth"]["last"], counting.asked) == (None, queries)
    land(warehouse, landing_row(NOW - 86_500, queue=queue, depth=3))
    point = queue_series(counting, DEFAULT_SCOPE, queue, period="24h", now=NOW)["timeseries"][0]
    assert point["queue_depth"]["last"] == 3
    counting.close()


def test_what_happens_in_the_window_does_not_seed_it(warehouse: Warehouse, queue: str) -> None:
    land(warehouse, landing_row(NOW - 60, queue=queue, depth=6))
    points = queue_series(warehouse, DEFAULT_SCOPE, queue, period="10m", now=NOW)["timeseries"]
    assert points[0]["queue_depth"] == {"max": None, "last": None}
    assert points[0]["latency"]["max_age_ms"] is None
    assert not points[0]["carried"]


@pytest.mark.parametrize("many", [False, True])
def test_rows_of_many_groups_and_batches_are_put_together(
    warehouse: Warehouse, queue: str, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = NOW // 60 * 60 - 600
    if many:  # more than is worth having as it lies, so ClickHouse puts it together
        monkeypatch.setattr(points, "as_they_lie", lambda *of: as_they_lie(*of[:-1], most=3))
    for batch in range(3):
        land(
            warehouse,
            landing_row(at + batch, queue=queue, enqueued=2, depth=(40 - batch, 10 + batch)),
            landing_row(at + batch, queue=queue, group="a", dequeued=1, depth=70, wait_ms=(10 * batch,)),
            landing_row(at + batch, queue=queue, group="b", dequeued=4, depth=80, wait_ms=(100,)),
        )
    point = by_time(queue_series(warehouse, DEFAULT_SCOPE, queue, period="24h", now=NOW))[at]
    assert point["throughput"] == {"enqueued": 6, "dequeued": 15, "completed": 0}
    assert point["queue_depth"] == {"max": 40, "last": 12}
    assert (point["latency"]["avg_wait_ms"], point["latency"]["p99_wait_ms"]) == (55.0, 100.0)
    of_a = queue_series(warehouse, DEFAULT_SCOPE, queue, group="a", period="24h", now=NOW)
    point = by_time(of_a)[at]
    assert point["throughput"] == {"enqueued": 6, "dequeued": 3, "completed": 0}
    assert (point["queue_depth"]["last"], point["latency"]["avg_wait_ms"]) == (70, 10.0)


def test_a_group_has_its_own_counts_and_gauges(warehouse: Warehouse, queue: str) -> None:
    at = NOW - 33
    land(
        warehouse,
        landing_row(at, queue=queue, enqueued=10, depth=10),
        landing_row(at, queue=queue, group="a", dequeued=4, acked=3, depth=6, wait_ms=(10,)),
        landing_row(at, queue=queue, group="b", dequeued=1, nacked=1, depth=9, wait_ms=(30,)),
    )

    def point(group: str | None) -> dict[str, Any]:
        return by_time(queue_series(warehouse, DEFAULT_SCOPE, queue, group=group, now=NOW))[at // 5 * 5]

    whole, a, b, nobody = point(None), point("a"), point("b"), point("nobody")
    assert whole["throughput"] == {"enqueued": 10, "dequeued": 5, "completed": 3}
    assert whole["queue_depth"] == {"max": 10, "last": 10}
    assert whole["latency"]["avg_wait_ms"] == 20.0
    assert a["throughput"] == {"enqueued": 10, "dequeued": 4, "completed": 3}
    assert a["queue_depth"] == {"max": 6, "last": 6}
    assert a["latency"]["avg_wait_ms"] == 10.0
    assert (b["throughput"]["dequeued"], b["failures"]["nack"], a["failures"]["nack"]) == (1, 1, 0)
    assert b["latency"]["p99_wait_ms"] == 30.0
    assert nobody["throughput"] == {"enqueued": 10, "dequeued": 0, "completed": 0}
    assert nobody["queue_depth"] == {"max": None, "last": None}


def test_another_tenants_queue_of_the_same_name_is_another_queue(warehouse: Warehouse, queue: str) -> None:
    ours = Scope("acme", "shop", "prod")
    at = NOW - 33
    for number, scope in enumerate(
        (ours, Scope("other", "shop", "prod"), Scope("acme", "x", "prod"), Scope("acme", "shop", "y"))
    ):
        land(
            warehouse,
            landing_row(
                at,
                queue=queue,
                organization=scope.organization,
                project=scope.project,
                environment=scope.environment,
                enqueued=10**number,
                depth=10**number,
            ),
        )
    series = queue_series(warehouse, ours, queue, now=NOW)
    assert by_time(series)[at // 5 * 5]["throughput"]["enqueued"] == 1
    assert series["timeseries"][-1]["queue_depth"]["last"] == 1
    assert known_queues(warehouse, ours) == [queue]
    assert queue_is_known(warehouse, ours, queue)
    assert not queue_is_known(warehouse, ours, "another")
    assert known_queues(warehouse, Scope("nobody", "shop", "prod")) == []


@pytest.mark.parametrize(
    ("period", "tier", "width"), [("2h", "5s", 5), ("24h", "1m", 60), ("7d", "1m", 60), ("30d", "1h", 3600)]
)
def test_every_tier_gives_the_same_totals(
    warehouse: Warehouse, queue: str, period: str, tier: str, width: int
) -> None:
    rows = [
        landing_row(NOW - 60 - 7 * n, queue=queue, enqueued=n, depth=n, wait_ms=(n, 2 * n))
        for n in range(100)
    ]
    land(warehouse, *rows)
    series = queue_series(warehouse, DEFAULT_SCOPE, queue, period=period, now=NOW)
    assert series["tier"] == tier
    points = series["timeseries"]
    assert sum(point["throughput"]["enqueued"] for point in points) == sum(range(100))
    assert max(point["queue_depth"]["max"] or 0 for point in points) == 99
    assert points[-1]["queue_depth"]["last"] == 0
    waits = [point["latency"]["avg_wait_ms"] for point in points if point["throughput"]["enqueued"]]
    assert waits
    assert all(0 <= wait <= 149 for wait in waits)


def test_a_coarser_resolution_sums_up_the_same_rows(warehouse: Warehouse, queue: str) -> None:
    land(warehouse, *(landing_row(NOW - 1 - 5 * n, queue=queue, enqueued=1) for n in range(60)))
    points = queue_series(warehouse, DEFAULT_SCOPE, queue, period="10m", resolution="30s", now=NOW)[
        "timeseries"
    ]
    assert len(points) == 20
    assert sum(point["throughput"]["enqueued"] for point in points) == 60
    assert max(point["throughput"]["enqueued"] for point in points) == 6


def test_the_answer_says_how_fresh_it_is(warehouse: Warehouse, queue: str) -> None:
    newest = NOW + 1_000
    land(warehouse, landing_row(newest, queue=queue, enqueued=1), landing_row(NOW, queue=queue, enqueued=1))
    series = queue_series(warehouse, DEFAULT_SCOPE, "another", now=NOW)
    assert datetime.fromisoformat(series["freshness"]).timestamp() == newest


def test_a_bad_period_is_refused(warehouse: Warehouse) -> None:
    with pytest.raises(InvalidRequest, match="such as 30m, 2h, 24h, 7d or 30d"):
        queue_series(warehouse, DEFAULT_SCOPE, "orders", period="soon")


def test_a_clickhouse_that_is_away_is_said_to_be(free_port: int) -> None:
    away = connect(f"http://127.0.0.1:{free_port}/default")
    with pytest.raises(WarehouseUnavailable):
        queue_series(away, DEFAULT_SCOPE, "orders")
