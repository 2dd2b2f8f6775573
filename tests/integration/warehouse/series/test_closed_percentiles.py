"""Stored percentiles: a series uses them only where they equal those of the digests."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from penstock.definitions import QUEUE
from penstock.model import DEFAULT_SCOPE
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.series.closed_percentiles import write_percentiles
from penstock.warehouse.series.points import SeriesReader
from penstock.warehouse.series.queue_series import environment_series, queue_series
from penstock.warehouse.series.series_response import SeriesPoint
from penstock.warehouse.tiers import HOUR, MINUTE, Tier
from tests.integration.warehouse.landing_rows import insert_rows, landing_row
from tests.integration.warehouse.recording_warehouse import RecordingWarehouse

NOW_S = int(datetime.now(UTC).timestamp()) // 3600 * 3600 - 86_400 + 1800
WINDOW_END = datetime.fromtimestamp(NOW_S, UTC)
LATER_S = NOW_S + 7200
"""A time at which all buckets of the window are closed."""


@pytest.fixture
def queue() -> str:
    return f"q-{uuid4().hex[:8]}"


@pytest.fixture
def recording(warehouse: Warehouse) -> Iterator[RecordingWarehouse]:
    client = RecordingWarehouse(warehouse.url)
    yield client
    client.close()


@pytest.fixture
def reader(recording: RecordingWarehouse) -> Iterator[SeriesReader]:
    """A reader whose queries are recorded."""
    series_reader = SeriesReader(recording)
    yield series_reader
    series_reader.close()


def insert_samples(warehouse: Warehouse, queue: str, group: str = "") -> None:
    """Insert waits and run times in three inserts, so that many buckets have several rows."""
    randomness = random.Random(7)
    for _ in range(3):
        rows = [
            landing_row(
                NOW_S - 60 * minute,
                queue=queue,
                group=group,
                wait_ms=tuple(randomness.randrange(10**6) for _ in range(randomness.randrange(1, 30))),
                run_ms=tuple(randomness.randrange(100) for _ in range(randomness.randrange(4))),
                depth=minute,
            )
            for minute in range(2, 90)
            if randomness.random() < 0.7
        ]
        insert_rows(warehouse, *rows)


def store_percentiles(warehouse: Warehouse, tier: Tier = MINUTE) -> None:
    hour_s = NOW_S // 3600 * 3600
    write_percentiles(warehouse, QUEUE, tier, hour_s - 4 * 3600, hour_s + 3600)


def closed_entries(
    reader: SeriesReader,
    queue: str,
    period: str = "24h",
    *,
    group: str | None = None,
    resolution: str | None = None,
) -> list[SeriesPoint]:
    """The entries of a window whose buckets are all closed."""
    series = queue_series(
        reader,
        DEFAULT_SCOPE,
        queue,
        group=group,
        period=period,
        resolution=resolution,
        end=WINDOW_END,
        now_s=LATER_S,
    )
    return series.points


def latency_values(entries: list[SeriesPoint], name: str) -> list[float]:
    return [entry["latency"][name] for entry in entries if entry["latency"][name] is not None]


@pytest.mark.parametrize(("period", "tier"), [("24h", MINUTE), ("30d", HOUR)])
def test_stored_percentiles_equal_those_of_the_digests_and_spare_reading_them(
    recording: RecordingWarehouse, reader: SeriesReader, queue: str, period: str, tier: Tier
) -> None:
    insert_samples(recording, queue)
    merged = closed_entries(reader, queue, period)
    assert recording.digest_queries == 1
    assert len(latency_values(merged, "p99_wait_ms")) >= (80 if tier == MINUTE else 2)
    store_percentiles(recording, tier)
    assert closed_entries(reader, queue, period) == merged
    assert recording.digest_queries == 1
    recording.command(f"OPTIMIZE TABLE queue_{tier.name} FINAL")
    assert closed_entries(reader, queue, period) == merged
    assert recording.digest_queries == 1


def test_an_environment_has_stored_percentiles_of_its_own(
    recording: RecordingWarehouse, reader: SeriesReader, queue: str
) -> None:
    insert_samples(recording, queue)
    merged = environment_series(reader, DEFAULT_SCOPE, period="24h", end=WINDOW_END, now_s=LATER_S)
    store_percentiles(recording)
    queries_before = recording.digest_queries
    stored = environment_series(reader, DEFAULT_SCOPE, period="24h", end=WINDOW_END, now_s=LATER_S)
    assert stored.points == merged.points
    assert recording.digest_queries == queries_before


def test_percentiles_of_the_open_minute_are_read_from_digests(
    recording: RecordingWarehouse, reader: SeriesReader, queue: str
) -> None:
    insert_rows(
        recording,
        landing_row(NOW_S - 600, queue=queue, wait_ms=(5,)),
        landing_row(NOW_S, queue=queue, wait_ms=(7, 9)),
    )
    write_percentiles(recording, QUEUE, MINUTE, NOW_S - 3600, NOW_S // 60 * 60)
    entries = queue_series(reader, DEFAULT_SCOPE, queue, period="24h", now_s=NOW_S).points
    assert latency_values(entries, "p99_wait_ms") == [5.0, 9.0]
    assert (recording.digest_queries, len(recording.point_queries)) == (1, 2)


def test_a_late_event_changes_the_percentiles_of_its_bucket(
    recording: RecordingWarehouse, reader: SeriesReader, queue: str
) -> None:
    for wait_ms in (10, 20, 30):
        insert_rows(recording, landing_row(NOW_S - 600, queue=queue, wait_ms=(wait_ms,)))
        insert_rows(recording, landing_row(NOW_S - 900, queue=queue, wait_ms=(5,)))
    store_percentiles(recording)
    insert_rows(recording, landing_row(NOW_S - 600, queue=queue, wait_ms=(9_000,) * 20))
    merged = closed_entries(reader, queue)
    assert sorted(latency_values(merged, "p95_wait_ms")) == [5.0, 9_000.0]
    assert recording.digest_queries == 1
    assert "IN (toDateTime" in recording.point_queries[-1]
    store_percentiles(recording)
    assert (closed_entries(reader, queue), recording.digest_queries) == (merged, 1)


def test_a_queue_merges_the_percentiles_of_its_groups(
    recording: RecordingWarehouse, reader: SeriesReader, queue: str
) -> None:
    for group, wait_ms in (("a", 10), ("b", 1_000)):
        insert_rows(recording, landing_row(NOW_S - 600, queue=queue, group=group, wait_ms=(wait_ms,) * 10))
    store_percentiles(recording)

    def p99(group: str | None) -> list[float]:
        return latency_values(closed_entries(reader, queue, group=group), "p99_wait_ms")

    assert (p99("a"), p99("b"), recording.digest_queries) == ([10.0], [1_000.0], 0)
    assert (p99(None), recording.digest_queries) == ([1_000.0], 1)


def test_wider_points_are_merged_from_digests(
    recording: RecordingWarehouse, reader: SeriesReader, queue: str
) -> None:
    point_s = NOW_S // 900 * 900 - 900
    for minute, wait_ms in enumerate((10, 20, 5_000)):
        insert_rows(recording, landing_row(point_s + 60 * minute, queue=queue, wait_ms=(wait_ms,) * 10))
    store_percentiles(recording)
    entries = closed_entries(reader, queue, resolution="15m")
    assert latency_values(entries, "p50_wait_ms") == [20.0]
    assert latency_values(entries, "p99_wait_ms") == [5_000.0]


def test_more_buckets_than_can_be_listed_are_read_as_a_range(
    recording: RecordingWarehouse, reader: SeriesReader, queue: str
) -> None:
    insert_samples(recording, queue)
    listed = closed_entries(reader, queue)
    range_reader = SeriesReader(recording, max_listed_buckets=10)
    assert closed_entries(range_reader, queue) == listed
    range_reader.close()
    assert "IN (toDateTime" in recording.point_queries[1]
    assert "IN (toDateTime" not in recording.point_queries[3]


def test_storing_percentiles_again_adds_no_rows(warehouse: Warehouse, queue: str) -> None:
    insert_samples(warehouse, queue)

    def stored_rows() -> int:
        [row] = warehouse.query(
            "SELECT sum(wait_ms_percentiles > 0) AS stored, sum(events) AS events FROM queue_1m "
            "WHERE queue = {queue:String}",
            {"queue": queue},
        )
        assert row["events"] > 100
        return int(row["stored"])

    store_percentiles(warehouse)
    rows_before = stored_rows()
    assert rows_before > 80
    store_percentiles(warehouse)
    assert stored_rows() == rows_before
