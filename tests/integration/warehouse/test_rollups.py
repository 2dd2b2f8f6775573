"""Rollups: the same events once more, by fewer dimensions, with gauges of their own."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from penstock.definitions import QUEUE
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import copy_statements, landing_table, tier_tables
from tests.integration.warehouse.landing import land, landing_row

MIDNIGHT = int(time.time()) // 86_400 * 86_400
AT = MIDNIGHT - 7_200


@pytest.fixture
def environment() -> str:
    return f"env-{uuid4().hex[:8]}"


def totals(warehouse: Warehouse, environment: str, suffix: str = "") -> dict[str, dict[str, Any]]:
    """Per table: events, enqueued and the number of waits."""
    found = {}
    for table in tier_tables(QUEUE):
        [row] = warehouse.query(
            f"SELECT sum(events) AS events, sum(enqueued) AS enqueued, sum(wait_ms_count) AS waits "
            f"FROM {table.name}{suffix} WHERE environment = {{environment:String}}",
            {"environment": environment},
        )
        found[table.name] = {name: int(value) for name, value in row.items()}
    return found


def test_there_is_a_table_per_tier_and_rollup() -> None:
    assert [(table.name, table.tier.name, table.rollup) for table in tier_tables(QUEUE)] == [
        ("queue_5s", "5s", None),
        ("queue_1m", "1m", None),
        ("queue_1h", "1h", None),
        ("queue_environment_5s", "5s", "environment"),
        ("queue_environment_1m", "1m", "environment"),
        ("queue_environment_1h", "1h", "environment"),
    ]


def test_an_insert_counts_once_in_every_table_however_often_it_is_made(
    warehouse: Warehouse, environment: str
) -> None:
    rows = [
        landing_row(AT + 7 * n, queue=f"q{n % 3}", environment=environment, enqueued=n, wait_ms=(n, n))
        for n in range(20)
    ]
    for _ in range(3):
        land(warehouse, *rows, token=f"once-{environment}")
    expected = {"events": 20, "enqueued": sum(range(20)), "waits": 40}
    assert totals(warehouse, environment) == {table.name: expected for table in tier_tables(QUEUE)}


def test_the_whole_has_its_own_gauges(warehouse: Warehouse, environment: str) -> None:
    land(
        warehouse,
        landing_row(AT + 1, queue="a", environment=environment, depth=5),
        landing_row(AT + 2, queue="", environment=environment, env_depth=(12, 11), env_running=3),
        landing_row(AT + 3, queue="b", environment=environment, depth=7),
    )
    for table in tier_tables(QUEUE):
        gauge = "env_depth" if table.rollup else "depth"
        [row] = warehouse.query(
            f"SELECT max({gauge}_max) AS highest, toInt64(max({gauge}_last)) AS newest, "
            f"max(seen_ms) AS seen, sum(events) AS events FROM {table.name} "
            "WHERE environment = {environment:String}",
            {"environment": environment},
        )
        expected = (12, 11, (AT + 2) * 1000, 3) if table.rollup else (7, 7, (AT + 3) * 1000, 2)
        assert (row["highest"], row["newest"], row["seen"], row["events"]) == expected


def test_what_speaks_for_the_whole_is_no_queue(warehouse: Warehouse, environment: str) -> None:
    land(warehouse, landing_row(AT, queue="", environment=environment, enqueued=4, env_depth=1))
    counted = {name: row["enqueued"] for name, row in totals(warehouse, environment).items()}
    assert counted == {table.name: 4 if table.rollup else 0 for table in tier_tables(QUEUE)}


def test_copies_are_filled_apart_from_the_live_tables(warehouse: Warehouse, environment: str) -> None:
    for statement in copy_statements(QUEUE, "_again"):
        warehouse.command(statement)
    [before] = warehouse.query("SELECT max(newest_ms) AS newest FROM freshness")
    row = landing_row(MIDNIGHT, environment=environment, enqueued=2, env_depth=9)
    land(warehouse, row, table=f"{landing_table(QUEUE)}_again")
    assert set(map(tuple, (r.items() for r in totals(warehouse, environment, "_again").values()))) == {
        (("events", 1), ("enqueued", 2), ("waits", 0))
    }
    assert not any(row["events"] for row in totals(warehouse, environment).values())
    assert warehouse.query("SELECT max(newest_ms) AS newest FROM freshness") == [before]
    made = warehouse.query(
        "SELECT create_table_query AS made FROM system.tables WHERE name LIKE 'queue%_again'"
    )
    assert not any("TTL" in row["made"] for row in made)
    day = datetime.fromtimestamp(MIDNIGHT, UTC).strftime("%Y-%m-%d")
    for table in tier_tables(QUEUE):
        warehouse.command(f"ALTER TABLE {table.name} REPLACE PARTITION '{day}' FROM {table.name}_again")
    assert {row["enqueued"] for row in totals(warehouse, environment).values()} == {2}
