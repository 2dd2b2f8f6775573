"""The series of a queue, read from a real ClickHouse."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from penstock.errors import InvalidRequest, WarehouseUnavailable
from penstock.model import DEFAULT_SCOPE, Scope
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.series.points import SeriesReader
from penstock.warehouse.series.queue_series import (
    known_queues,
    queue_is_known,
    queue_series,
)
from penstock.warehouse.series.series_response import Series
from tests.integration.warehouse.landing_rows import insert_rows, landing_row
from tests.integration.warehouse.recording_warehouse import RecordingWarehouse

NOW_S = datetime.now(UTC).replace(hour=10, minute=20, second=3, microsecond=0).timestamp()
if datetime.now(UTC).timestamp() < NOW_S:
    NOW_S -= 86_400


@pytest.fixture
def queue() -> str:
    return f"orders:{uuid4().hex[:8]} 'x' \\ \t é"


def points_by_time(series: Series) -> dict[float, dict[str, Any]]:
    return {datetime.fromisoformat(point["timestamp"]).timestamp(): point for point in series.points}


def test_a_point_has_the_inserted_counters_samples_and_gauges(
    warehouse: Warehouse, reader: SeriesReader, queue: str
) -> None:
    time_s = NOW_S - 63
    insert_rows(
        warehouse,
        landing_row(
            time_s, queue=queue, enqueued=3, depth=(9, 4), delayed=(7, 5), limit=10, oldest_age_ms=1_500
        ),
        landing_row(
            time_s,
            queue=queue,
            group="billing",
            dequeued=2,
            acked=2,
            nacked=1,
            dead=1,
            expired=1,
            released=4,
            wait_ms=(0, 40, 110),
            run_ms=(30,),
        ),
        landing_row(time_s, queue=queue, running=8),
    )
    series = queue_series(reader, DEFAULT_SCOPE, queue, now_s=NOW_S)
    head = series.to_response()
    assert (head["queue"], head["resolution"], head["tier"]) == (queue, "5s", "5s")
    assert len(series.points) == 360
    assert points_by_time(series)[time_s // 5 * 5] == {
        "timestamp": datetime.fromtimestamp(time_s // 5 * 5, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "throughput": {"enqueued": 3, "dequeued": 2, "completed": 2, "released": 4},
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
        "failures": {"nack": 1, "dlq": 1, "ttl_expired": 1, "rate": 0.5},
        "carried": False,
        "complete": None,
    }


def test_points_without_events_have_zero_counts_and_carried_gauges(
    warehouse: Warehouse, reader: SeriesReader, queue: str
) -> None:
    time_s = NOW_S // 5 * 5 - 300
    insert_rows(
        warehouse, landing_row(time_s + 1, queue=queue, enqueued=5, depth=(500, 2), oldest_age_ms=1_000)
    )
    points = queue_series(reader, DEFAULT_SCOPE, queue, period="10m", now_s=NOW_S).points
    before = [point for point in points if not point["carried"] and point["queue_depth"]["last"] is None]
    carried = [point for point in points if point["carried"]]
    assert (len(before), len(carried), len(points)) == (59, 60, 120)
    assert {point["queue_depth"]["max"] for point in carried} == {2}
    assert all(
        point["throughput"] == {"enqueued": 0, "dequeued": 0, "completed": 0, "released": 0}
        for point in carried
    )
    ages = [point["latency"]["max_age_ms"] for point in carried]
    assert ages[0] == 1_000 + 9_000
    assert ages[1] - ages[0] == 5_000
    assert ages[-1] == 1_000 + int((NOW_S - (time_s + 1)) * 1000)


def test_an_empty_queue_has_no_oldest_message(warehouse: Warehouse, reader: SeriesReader, queue: str) -> None:
    insert_rows(warehouse, landing_row(NOW_S - 100, queue=queue, depth=(7, 0), oldest_age_ms=(9_000, 0)))
    points = queue_series(reader, DEFAULT_SCOPE, queue, period="5m", now_s=NOW_S).points
    assert points[-1]["queue_depth"] == {"max": 0, "last": 0}
    assert points[-1]["latency"]["max_age_ms"] == 0
    assert points[-1]["carried"]


def test_the_last_value_is_the_newest_in_any_order_of_arrival(
    warehouse: Warehouse, reader: SeriesReader, queue: str
) -> None:
    time_s = NOW_S // 5 * 5 - 60
    insert_rows(warehouse, landing_row(time_s + 3, queue=queue, depth=1))
    insert_rows(warehouse, landing_row(time_s + 1, queue=queue, depth=8))
    point = points_by_time(queue_series(reader, DEFAULT_SCOPE, queue, now_s=NOW_S))[time_s]
    assert point["queue_depth"] == {"max": 8, "last": 1}


@pytest.mark.parametrize("ago_s", [31 * 60, 3 * 3600, 40 * 3600, 5 * 86_400, 200 * 86_400])
def test_gauges_start_with_their_last_value_before_the_window(
    warehouse: Warehouse, reader: SeriesReader, queue: str, ago_s: int
) -> None:
    insert_rows(warehouse, landing_row(NOW_S - ago_s - 600, queue=queue, depth=99))
    insert_rows(warehouse, landing_row(NOW_S - ago_s, queue=queue, depth=(50, 3), oldest_age_ms=0))
    first = queue_series(reader, DEFAULT_SCOPE, queue, period="30m", now_s=NOW_S).points[0]
    assert first["queue_depth"] == {"max": 3, "last": 3}
    assert first["carried"]
    assert abs(first["latency"]["max_age_ms"] - (ago_s - 1800) * 1000) <= 10_000


def test_delayed_tasks_are_carried_and_null_for_a_durable_queue(
    warehouse: Warehouse, reader: SeriesReader, queue: str
) -> None:
    insert_rows(warehouse, landing_row(NOW_S - 600, queue=queue, depth=1, delayed=(12, 9)))
    insert_rows(warehouse, landing_row(NOW_S - 60, queue=queue, depth=2))
    points = queue_series(reader, DEFAULT_SCOPE, queue, period="5m", now_s=NOW_S, fields=["delayed"])
    assert all(point["delayed"] == {"max": 9, "last": 9} for point in points.points)
    durable_queue = queue + " durable"
    insert_rows(warehouse, landing_row(NOW_S - 60, queue=durable_queue, depth=2, running=0))
    point = queue_series(reader, DEFAULT_SCOPE, durable_queue, now_s=NOW_S).points[-1]
    assert (point["queue_depth"]["last"], point["delayed"]) == (2, {"max": None, "last": None})


def test_the_last_value_is_found_after_the_fine_tiers_dropped_it(
    warehouse: Warehouse, reader: SeriesReader, queue: str
) -> None:
    insert_rows(warehouse, landing_row(NOW_S - 3 * 86_400, queue=queue, depth=6))
    for table in ("queue_5s", "queue_1m"):
        warehouse.command(f"TRUNCATE TABLE {table}")
    first = queue_series(reader, DEFAULT_SCOPE, queue, now_s=NOW_S).points[0]
    assert first["queue_depth"] == {"max": 6, "last": 6}


def test_a_gauge_that_is_no_longer_observed_is_gone_and_its_absence_is_cached(
    warehouse: Warehouse, queue: str
) -> None:
    insert_rows(warehouse, landing_row(NOW_S - 5 * 86_400, queue=queue, depth=1, limit=10))
    insert_rows(warehouse, landing_row(NOW_S - 1_900, queue=queue, depth=8, running=4, oldest_age_ms=0))
    recording = RecordingWarehouse(warehouse.url)
    reader = SeriesReader(recording)
    for queries in (2, 1):
        recording.statements.clear()
        first = queue_series(reader, DEFAULT_SCOPE, queue, now_s=NOW_S).points[0]
        assert (first["queue_depth"]["last"], len(recording.statements)) == (8, queries)
        assert first["concurrency"]["limit"] is None
    insert_rows(warehouse, landing_row(NOW_S - 60, queue=queue, limit=7))
    last = queue_series(reader, DEFAULT_SCOPE, queue, now_s=NOW_S).points[-1]
    assert last["concurrency"]["limit"] == 7
    reader.close()
    recording.close()


def test_the_lack_of_history_of_a_new_queue_is_cached(warehouse: Warehouse, queue: str) -> None:
    recording = RecordingWarehouse(warehouse.url)
    reader = SeriesReader(recording)
    insert_rows(warehouse, landing_row(NOW_S - 120, queue=queue, depth=8))
    # The queries read the points, the newest percentiles, the last two days, and all hours before those.
    for period, queries in [("24h", 4), ("24h", 2), ("60d", 3), ("60d", 2)]:
        recording.statements.clear()
        point = queue_series(reader, DEFAULT_SCOPE, queue, period=period, now_s=NOW_S).points[0]
        assert (point["queue_depth"]["last"], len(recording.statements)) == (None, queries)
    insert_rows(warehouse, landing_row(NOW_S - 86_500, queue=queue, depth=3))
    point = queue_series(reader, DEFAULT_SCOPE, queue, period="24h", now_s=NOW_S).points[0]
    assert point["queue_depth"]["last"] == 3
    reader.close()
    recording.close()


def test_an_observation_within_the_window_is_not_carried_back(
    warehouse: Warehouse, reader: SeriesReader, queue: str
) -> None:
    insert_rows(warehouse, landing_row(NOW_S - 60, queue=queue, depth=6))
    points = queue_series(reader, DEFAULT_SCOPE, queue, period="10m", now_s=NOW_S).points
    assert points[0]["queue_depth"] == {"max": None, "last": None}
    assert points[0]["latency"]["max_age_ms"] is None
    assert not points[0]["carried"]


@pytest.mark.parametrize("many_rows", [False, True])
def test_rows_of_several_groups_and_batches_are_merged(
    warehouse: Warehouse, queue: str, many_rows: bool
) -> None:
    time_s = NOW_S // 60 * 60 - 600
    recording = RecordingWarehouse(warehouse.url)
    reader = SeriesReader(recording)
    if many_rows:  # more than three rows per point, so ClickHouse aggregates them
        groups = (f"group-{number}" for number in range(4_500))
        insert_rows(
            warehouse, *(landing_row(time_s - 600, queue=queue, group=group, acked=1) for group in groups)
        )
    for batch in range(3):
        insert_rows(
            warehouse,
            landing_row(time_s + batch, queue=queue, enqueued=2, depth=(40 - batch, 10 + batch)),
            landing_row(time_s + batch, queue=queue, group="a", dequeued=1, depth=70, wait_ms=(10 * batch,)),
            landing_row(time_s + batch, queue=queue, group="b", dequeued=4, depth=80, wait_ms=(100,)),
        )
    point = points_by_time(queue_series(reader, DEFAULT_SCOPE, queue, period="24h", now_s=NOW_S))[time_s]
    assert point["throughput"] == {"enqueued": 6, "dequeued": 15, "completed": 0, "released": 0}
    assert point["queue_depth"] == {"max": 40, "last": 12}
    assert (point["latency"]["avg_wait_ms"], point["latency"]["p99_wait_ms"]) == (55.0, 100.0)
    is_aggregated = any("GROUP BY" in sql and "_digest" not in sql for sql in recording.statements)
    assert is_aggregated == many_rows
    group_a = queue_series(reader, DEFAULT_SCOPE, queue, group="a", period="24h", now_s=NOW_S)
    point = points_by_time(group_a)[time_s]
    assert point["throughput"] == {"enqueued": 6, "dequeued": 3, "completed": 0, "released": 0}
    assert (point["queue_depth"]["last"], point["latency"]["avg_wait_ms"]) == (70, 10.0)
    reader.close()
    recording.close()


def test_a_group_has_its_own_counts_and_gauges(
    warehouse: Warehouse, reader: SeriesReader, queue: str
) -> None:
    time_s = NOW_S - 33
    insert_rows(
        warehouse,
        landing_row(time_s, queue=queue, enqueued=10, depth=10),
        landing_row(time_s, queue=queue, group="a", dequeued=4, acked=3, depth=6, wait_ms=(10,)),
        landing_row(time_s, queue=queue, group="b", dequeued=1, nacked=1, depth=9, wait_ms=(30,)),
    )

    def point(group: str | None) -> dict[str, Any]:
        return points_by_time(queue_series(reader, DEFAULT_SCOPE, queue, group=group, now_s=NOW_S))[
            time_s // 5 * 5
        ]

    whole, a, b, unknown = point(None), point("a"), point("b"), point("unknown")
    assert whole["throughput"] == {"enqueued": 10, "dequeued": 5, "completed": 3, "released": 0}
    assert whole["queue_depth"] == {"max": 10, "last": 10}
    assert whole["latency"]["avg_wait_ms"] == 20.0
    assert a["throughput"] == {"enqueued": 10, "dequeued": 4, "completed": 3, "released": 0}
    assert a["queue_depth"] == {"max": 6, "last": 6}
    assert a["latency"]["avg_wait_ms"] == 10.0
    assert (b["throughput"]["dequeued"], b["failures"]["nack"], a["failures"]["nack"]) == (1, 1, 0)
    assert b["latency"]["p99_wait_ms"] == 30.0
    assert unknown["throughput"] == {"enqueued": 10, "dequeued": 0, "completed": 0, "released": 0}
    assert unknown["queue_depth"] == {"max": None, "last": None}


def test_another_tenants_queue_of_the_same_name_is_another_queue(
    warehouse: Warehouse, reader: SeriesReader, queue: str
) -> None:
    ours = Scope("acme", "shop", "prod")
    time_s = NOW_S - 33
    for number, scope in enumerate(
        (ours, Scope("other", "shop", "prod"), Scope("acme", "x", "prod"), Scope("acme", "shop", "y"))
    ):
        insert_rows(
            warehouse,
            landing_row(
                time_s,
                queue=queue,
                organization=scope.organization,
                project=scope.project,
                environment=scope.environment,
                enqueued=10**number,
                depth=10**number,
            ),
        )
    series = queue_series(reader, ours, queue, now_s=NOW_S)
    assert points_by_time(series)[time_s // 5 * 5]["throughput"]["enqueued"] == 1
    assert series.points[-1]["queue_depth"]["last"] == 1
    assert known_queues(warehouse, ours) == [queue]
    assert queue_is_known(warehouse, ours, queue)
    assert not queue_is_known(warehouse, ours, "another")
    assert known_queues(warehouse, Scope("unknown", "shop", "prod")) == []


@pytest.mark.parametrize(
    ("period", "tier", "width"), [("2h", "5s", 5), ("24h", "1m", 60), ("7d", "1m", 60), ("30d", "1h", 3600)]
)
def test_every_tier_gives_the_same_totals(
    warehouse: Warehouse, reader: SeriesReader, queue: str, period: str, tier: str, width: int
) -> None:
    rows = [
        landing_row(NOW_S - 60 - 7 * n, queue=queue, enqueued=n, depth=n, wait_ms=(n, 2 * n))
        for n in range(100)
    ]
    insert_rows(warehouse, *rows)
    series = queue_series(reader, DEFAULT_SCOPE, queue, period=period, now_s=NOW_S)
    assert series.window.tier.name == tier
    points = series.points
    assert sum(point["throughput"]["enqueued"] for point in points) == sum(range(100))
    assert max(point["queue_depth"]["max"] or 0 for point in points) == 99
    assert points[-1]["queue_depth"]["last"] == 0
    waits = [point["latency"]["avg_wait_ms"] for point in points if point["throughput"]["enqueued"]]
    assert waits
    assert all(0 <= wait <= 149 for wait in waits)


def test_a_coarser_resolution_sums_up_the_same_rows(
    warehouse: Warehouse, reader: SeriesReader, queue: str
) -> None:
    insert_rows(warehouse, *(landing_row(NOW_S - 1 - 5 * n, queue=queue, enqueued=1) for n in range(60)))
    points = queue_series(reader, DEFAULT_SCOPE, queue, period="10m", resolution="30s", now_s=NOW_S).points
    assert len(points) == 20
    assert sum(point["throughput"]["enqueued"] for point in points) == 60
    assert max(point["throughput"]["enqueued"] for point in points) == 6


def test_the_response_has_the_time_of_the_newest_event(
    warehouse: Warehouse, reader: SeriesReader, queue: str
) -> None:
    newest = NOW_S + 1_000
    insert_rows(
        warehouse, landing_row(newest, queue=queue, enqueued=1), landing_row(NOW_S, queue=queue, enqueued=1)
    )
    series = queue_series(reader, DEFAULT_SCOPE, "another", now_s=NOW_S)
    freshness = series.completeness.freshness
    assert freshness is not None
    assert datetime.fromisoformat(freshness).timestamp() == newest


def test_an_invalid_period_is_rejected(reader: SeriesReader) -> None:
    with pytest.raises(InvalidRequest, match="such as 30m, 2h, 24h, 7d or 30d"):
        queue_series(reader, DEFAULT_SCOPE, "orders", period="soon")


def test_an_unreachable_clickhouse_raises_warehouse_unavailable(free_port: int) -> None:
    unreachable = SeriesReader(connect(f"http://127.0.0.1:{free_port}/default"))
    with pytest.raises(WarehouseUnavailable):
        queue_series(unreachable, DEFAULT_SCOPE, "orders")


def test_points_that_overlap_the_interval_of_a_loss_are_not_complete(
    warehouse: Warehouse, reader: SeriesReader, queue: str
) -> None:
    end_s = int(NOW_S) // 60 * 60 - 20 * 86_400  # a time of which no other test records a loss
    start_s = end_s - 60
    warehouse.command(
        "INSERT INTO set_aside (metric, reason, stream, at, began_at, events, example) VALUES "
        f"('queue', 'trimmed', 's', toDateTime({start_s + 27}), toDateTime({start_s + 13}), 200, ''), "
        f"('queue', 'dropped', 's', toDateTime({end_s + 30}), toDateTime({start_s + 51}), 7, ''), "
        f"('queue', 'not_a_number', 's', toDateTime({start_s + 40}), toDateTime({start_s + 40}), 5, ''), "
        f"('queue', 'replayed', 's', toDateTime({start_s + 40}), toDateTime({start_s + 40}), 2, '')"
    )

    def series_of(first_s: int, last_s: int, counted_until_s: float | None = NOW_S) -> Series:
        start, end = (datetime.fromtimestamp(seconds, UTC) for seconds in (first_s, last_s))
        return queue_series(
            reader,
            DEFAULT_SCOPE,
            queue,
            start=start,
            end=end,
            resolution="5s",
            now_s=end_s + 60,
            counted_until_s=counted_until_s,
        )

    series = series_of(start_s, end_s)
    incomplete = [n for n, point in enumerate(series.points) if not point["complete"]]
    assert incomplete == [2, 3, 4, 5, 10, 11]
    assert series.completeness.lost == 207
    assert series.completeness.rejected == 3, "5 rejected, of which 2 were replayed"
    before, between = series_of(start_s, start_s + 10), series_of(start_s + 30, start_s + 50)
    assert (before.completeness.lost, between.completeness.lost) == (0, 0)
    assert all(point["complete"] for point in (*before.points, *between.points))
    unknown = series_of(start_s, end_s, None).points
    assert [point["complete"] for point in unknown[:3]] == [None, None, False]
