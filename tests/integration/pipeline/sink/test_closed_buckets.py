"""Tests that closed buckets get percentiles, and new ones after late events."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import pytest

from penstock.definitions import QUEUE
from penstock.embedded.servers.ports import any_free_port
from penstock.pipeline.sink.closed_buckets import GRACE_S, INTERVAL_S, ClosedBuckets
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.series.packed_maximum import unpack_percentiles_count
from tests.integration.pipeline.measurements import insert_events, queue_event

HOUR_S = int(datetime.now(UTC).timestamp()) // 3600 * 3600 - 6 * 3600


def land(warehouse: Warehouse, *times_s: int) -> None:
    insert_events(warehouse, [queue_event(at_s, "orders", wait_ms=[at_s % 97, 5]) for at_s in times_s])


def covered_samples(warehouse: Warehouse, table: str = "queue_1m") -> list[tuple[int, int, int]]:
    """Return per bucket its start, its samples, and how many samples its percentiles cover."""
    rows = warehouse.query(
        f"SELECT toInt64(toUnixTimestamp(bucket)) AS at, sum(wait_ms_count) AS samples, "
        f"{unpack_percentiles_count('max(wait_ms_percentiles)')} AS written "
        f"FROM {table} GROUP BY at ORDER BY at"
    )
    return [(row["at"] - HOUR_S, row["samples"], row["written"]) for row in rows]


def test_closed_buckets_are_written_once_and_again_after_a_change(warehouse: Warehouse) -> None:
    buckets = ClosedBuckets(QUEUE, warehouse)
    land(warehouse, HOUR_S + 1, HOUR_S + 2, HOUR_S + 61)
    buckets.mark_changed(HOUR_S + 1)
    assert buckets.write(HOUR_S + 60 + GRACE_S)
    assert covered_samples(warehouse) == [(0, 4, 4), (60, 2, 0)]
    assert covered_samples(warehouse, "queue_1h") == [(0, 6, 0)]
    assert covered_samples(warehouse, "queue_environment_1m") == [(0, 4, 4), (60, 2, 0)]

    land(warehouse, HOUR_S + 3)
    assert buckets.write(HOUR_S + 120 + GRACE_S)  # without mark_changed
    assert covered_samples(warehouse) == [(0, 6, 4), (60, 2, 2)]
    buckets.mark_changed(HOUR_S + 3)
    assert buckets.write(HOUR_S + 3600 + GRACE_S)
    assert covered_samples(warehouse) == [(0, 6, 6), (60, 2, 2)]
    assert covered_samples(warehouse, "queue_1h") == [(0, 8, 8)]
    assert covered_samples(warehouse, "queue_environment_1h") == [(0, 8, 8)]


def test_a_new_process_writes_the_buckets_that_a_killed_one_left(warehouse: Warehouse) -> None:
    land(warehouse, HOUR_S + 1, HOUR_S + 1800)
    buckets = ClosedBuckets(QUEUE, warehouse)
    buckets.resume(HOUR_S + 1800)
    assert buckets.write(HOUR_S + 7200)
    assert covered_samples(warehouse) == [(0, 2, 2), (1800, 2, 2)]
    assert covered_samples(warehouse, "queue_1h") == [(0, 4, 4)]


def test_many_buckets_are_written_in_several_calls(warehouse: Warehouse) -> None:
    land(warehouse, *(HOUR_S + 3600 * hour for hour in range(5)))
    buckets = ClosedBuckets(QUEUE, warehouse, budget_s=-1.0)
    buckets.mark_changed(HOUR_S)
    assert not buckets.write(HOUR_S + 6 * 3600)
    assert {written for _, _, written in covered_samples(warehouse)} == {0}
    buckets.budget_s = 60.0
    assert buckets.write(HOUR_S + 6 * 3600)
    assert {written for _, _, written in covered_samples(warehouse)} == {2}


def test_percentiles_are_written_once_a_minute(warehouse: Warehouse) -> None:
    land(warehouse, HOUR_S + 1)
    buckets = ClosedBuckets(QUEUE, warehouse)
    buckets.mark_changed(HOUR_S + 1)
    buckets.write_if_due(HOUR_S + 60)
    buckets.write_if_due(HOUR_S + 60 + INTERVAL_S - 1)
    assert covered_samples(warehouse) == [(0, 2, 0)]
    buckets.write_if_due(HOUR_S + 60 + INTERVAL_S)
    assert covered_samples(warehouse) == [(0, 2, 2)]


def test_an_unreachable_clickhouse_is_logged_and_tried_again(
    warehouse: Warehouse, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(warehouse, HOUR_S + 1)
    buckets = ClosedBuckets(QUEUE, connect(f"http://127.0.0.1:{any_free_port()}/default"))
    buckets.mark_changed(HOUR_S + 1)
    with caplog.at_level(logging.WARNING):
        assert buckets.write(HOUR_S + 7200)
    assert "cannot write percentiles" in caplog.text
    monkeypatch.setattr(buckets, "_warehouse", warehouse)
    assert buckets.write(HOUR_S + 7200)
    assert covered_samples(warehouse) == [(0, 2, 2)]
