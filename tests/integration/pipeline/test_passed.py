"""Buckets that have passed get their percentiles written down, and get them anew when late events come."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import pytest

from penstock.definitions import QUEUE
from penstock.embedded.servers.ports import any_free_port
from penstock.pipeline.sink import closed_buckets
from penstock.pipeline.sink.closed_buckets import EVERY_S, GRACE_S, PassedBuckets
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.series.packed_maximum import percentiles_count
from tests.integration.pipeline.measured import land_events, measured

HOUR_S = int(datetime.now(UTC).timestamp()) // 3600 * 3600 - 6 * 3600


def land(warehouse: Warehouse, *moments_s: int) -> None:
    land_events(warehouse, [measured(at_s, "orders", wait_ms=[at_s % 97, 5]) for at_s in moments_s])


def spoken_for(warehouse: Warehouse, table: str = "queue_1m") -> list[tuple[int, int, int]]:
    """Per bucket: its start, its samples, and how many of them the percentiles speak for."""
    rows = warehouse.query(
        f"SELECT toInt64(toUnixTimestamp(bucket)) AS at, sum(wait_ms_count) AS samples, "
        f"{percentiles_count('max(wait_ms_percentiles)')} AS written FROM {table} GROUP BY at ORDER BY at"
    )
    return [(row["at"] - HOUR_S, row["samples"], row["written"]) for row in rows]


def test_what_has_passed_is_written_once_and_again_when_it_changes(warehouse: Warehouse) -> None:
    buckets = PassedBuckets(QUEUE, warehouse)
    land(warehouse, HOUR_S + 1, HOUR_S + 2, HOUR_S + 61)
    buckets.touched(HOUR_S + 1)
    assert buckets.write(HOUR_S + 60 + GRACE_S)
    assert spoken_for(warehouse) == [(0, 4, 4), (60, 2, 0)]
    assert spoken_for(warehouse, "queue_1h") == [(0, 6, 0)]
    assert spoken_for(warehouse, "queue_environment_1m") == [(0, 4, 4), (60, 2, 0)]

    land(warehouse, HOUR_S + 3)
    assert buckets.write(HOUR_S + 120 + GRACE_S)  # nobody told it
    assert spoken_for(warehouse) == [(0, 6, 4), (60, 2, 2)]
    buckets.touched(HOUR_S + 3)
    assert buckets.write(HOUR_S + 3600 + GRACE_S)
    assert spoken_for(warehouse) == [(0, 6, 6), (60, 2, 2)]
    assert spoken_for(warehouse, "queue_1h") == [(0, 8, 8)]
    assert spoken_for(warehouse, "queue_environment_1h") == [(0, 8, 8)]


def test_what_a_killed_process_left_is_done_by_the_next(warehouse: Warehouse) -> None:
    land(warehouse, HOUR_S + 1, HOUR_S + 1800)
    buckets = PassedBuckets(QUEUE, warehouse)
    buckets.begin(HOUR_S + 1800)
    assert buckets.write(HOUR_S + 7200)
    assert spoken_for(warehouse) == [(0, 2, 2), (1800, 2, 2)]
    assert spoken_for(warehouse, "queue_1h") == [(0, 4, 4)]


def test_a_lot_is_done_in_several_turns(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    land(warehouse, *(HOUR_S + 3600 * hour for hour in range(5)))
    buckets = PassedBuckets(QUEUE, warehouse)
    buckets.touched(HOUR_S)
    monkeypatch.setattr(closed_buckets, "BUDGET_S", -1.0)
    assert not buckets.write(HOUR_S + 6 * 3600)
    assert {written for _, _, written in spoken_for(warehouse)} == {0}
    monkeypatch.setattr(closed_buckets, "BUDGET_S", 60.0)
    assert buckets.write(HOUR_S + 6 * 3600)
    assert {written for _, _, written in spoken_for(warehouse)} == {2}


def test_it_is_done_once_a_minute(warehouse: Warehouse) -> None:
    land(warehouse, HOUR_S + 1)
    buckets = PassedBuckets(QUEUE, warehouse)
    buckets.touched(HOUR_S + 1)
    buckets.write_if_due(HOUR_S + 60)
    buckets.write_if_due(HOUR_S + 60 + EVERY_S - 1)
    assert spoken_for(warehouse) == [(0, 2, 0)]
    buckets.write_if_due(HOUR_S + 60 + EVERY_S)
    assert spoken_for(warehouse) == [(0, 2, 2)]


def test_a_clickhouse_that_is_away_is_told_and_asked_again(
    warehouse: Warehouse, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(warehouse, HOUR_S + 1)
    buckets = PassedBuckets(QUEUE, connect(f"http://127.0.0.1:{any_free_port()}/default"))
    buckets.touched(HOUR_S + 1)
    with caplog.at_level(logging.WARNING):
        assert buckets.write(HOUR_S + 7200)
    assert "percentiles were not written down" in caplog.text
    monkeypatch.setattr(buckets, "_warehouse", warehouse)
    assert buckets.write(HOUR_S + 7200)
    assert spoken_for(warehouse) == [(0, 2, 2)]
